-- The fixed window: a tick is a window, which holds `depth`. See level.lua for the state.

local function fixed_window_fits(t, size)
  return level_owed(t) + t.out + size <= t.depth
end

local fixed_window = { read = level_read, fits = fixed_window_fits, take = level_take, tell = level_tell }

-- Only for changes.

level_changes(fixed_window)

function fixed_window.rest(t)
  return math.max(t.depth - level_owed(t) - t.out, 0)
end

-- Counts are commutative: a receipt counts as long as its window is the newest that is used, and not over.
function fixed_window.back(t, size)
  local newest = t.tick + math.ceil(t.height / t.rate) - 1
  if t.height <= 0 or t.mark_at < t.tick or t.mark_at ~= newest then
    return false
  end
  return level_lower(t, math.min(size, t.height - (t.mark_at - t.tick) * t.rate))
end
