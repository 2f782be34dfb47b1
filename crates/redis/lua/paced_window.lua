-- The paced window: as a fixed one, but released evenly, one at its beginning and the k-th when k-1 parts in `depth` of it
-- have passed. See level.lua for the state, fixed_window.lua for what else is the same. `unit` is the greatest common divisor of
-- depth and period, which keeps the products below 2^53 for all but absurd quotas; beyond that they are taken a hair smaller,
-- so that what is inexact comes late by less than a tick, and never early.

local function released(t)
  local share = (now - t.tick * t.period) * (t.depth / t.unit)
  if share > 9007199254740992 then
    share = share * 0.999999999999999
  end
  return math.floor(share / (t.period / t.unit)) + 1
end

local function paced_window_fits(t, size)
  return size <= t.depth and level_owed(t) + size <= released(t)
end

local paced_window = { read = level_read, fits = paced_window_fits, take = level_take, tell = level_tell }

-- Only for changes.

level_changes(paced_window)
paced_window.back = fixed_window.back

function paced_window.rest(t)
  return math.max(math.min(released(t), t.depth) - level_owed(t), 0)
end
