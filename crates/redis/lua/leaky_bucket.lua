-- The leaky bucket, as a meter (nothing may be owed) and as a queue (`extra` may). See level.lua for the state.

local function leaky_bucket_fits(t, size)
  return t.height <= t.extra and size <= t.depth
end

local leaky_bucket = { read = level_read, fits = leaky_bucket_fits, take = level_take, tell = level_tell }
local leaky_queue = { read = level_read, fits = leaky_bucket_fits, take = level_take, tell = level_tell }

-- Only for changes.

level_changes(leaky_bucket)
level_changes(leaky_queue)

-- A meter that may leave now has all of it, and else none.
function leaky_bucket.rest(t)
  return t.height <= 0 and t.depth or 0
end

-- A queue has the room that is left in it, if anybody may wait at all.
function leaky_queue.rest(t)
  return t.height <= t.extra and math.max(t.depth - math.ceil(level_owed(t) / t.unit) * t.unit, 0) or 0
end

-- Only the last one can be undone: others were given their times on top of an earlier one.
function leaky_bucket.back(t, size)
  return t.height == level_mark(t) and level_undo(t, size)
end

leaky_queue.back = leaky_bucket.back

-- Those in a queue were given their times one on top of the other: nobody knows whose this is.
function leaky_queue.lower()
  return false
end
