-- The token bucket: `depth` units, refilled by `rate` units a microsecond. See level.lua for the state.
local token_bucket = setmetatable({}, { __index = level })

function token_bucket.fits(t, size)
  return level.owed(t) + size <= t.depth
end

-- What is left, in whole tokens.
function token_bucket.rest(t)
  return math.max(math.floor((t.depth - level.owed(t)) / t.unit), 0) * t.unit
end

-- What a receipt for `size` is still worth: not what time has restored since, nor what others were promised on top of it.
function token_bucket.back(t, size)
  local mark = level.mark(t)
  local later = t.height - mark
  if later < 0 then
    return false
  elseif later > 0 and t.height > t.depth then
    size = t.mark_at >= t.tick and size - later or 0
  elseif later > 0 then
    size = math.min(size, mark)
  end
  return size > 0 and level.undo(t, size)
end
