-- The token bucket: `depth` units, refilled by `rate` units a microsecond. See level.lua for the state.

local function token_bucket_fits(t, size)
  return level_owed(t) + t.out + size <= t.depth
end

local token_bucket = { read = level_read, fits = token_bucket_fits, take = level_take, tell = level_tell }

-- Only for changes.

level_changes(token_bucket)

-- What is left, in whole tokens.
function token_bucket.rest(t)
  return math.max(math.floor((t.depth - level_owed(t) - t.out) / t.unit), 0) * t.unit
end

-- What a receipt for `size` is still worth: not what time has restored since, nor what others were promised on top of it.
function token_bucket.back(t, size)
  local mark = level_mark(t)
  local later = t.height - mark
  if later < 0 then
    return false
  elseif later > 0 and t.height > t.depth then
    size = math.min(size - later, mark)
  elseif later > 0 then
    size = math.min(size, mark)
  end
  return size > 0 and level_undo(t, size)
end
