-- The leaky bucket, as a meter (nothing may be owed) and as a queue (`extra` may). See level.lua for the state.
local leaky_bucket = setmetatable({}, { __index = level })

function leaky_bucket.fits(t, size)
  return level.owed(t) <= t.extra and size <= t.depth
end

-- A queue has the room that is left in it, a meter that may leave now all of it, and else none.
function leaky_bucket.rest(t)
  if t.extra == 0 then
    return level.owed(t) == 0 and t.depth or 0
  end
  return math.max(t.depth - math.ceil(level.owed(t) / t.unit) * t.unit, 0)
end

-- Only the last one can be undone: others were given their times on top of an earlier one.
function leaky_bucket.back(t, size)
  return t.height == level.mark(t) and level.undo(t, size)
end

-- Those in a queue were given their times one on top of the other: nobody knows whose this is.
local leaky_queue = setmetatable({}, { __index = leaky_bucket })

function leaky_queue.lower()
  return false
end
