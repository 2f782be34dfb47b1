-- Decides about any number of limits at once: all of them, or nothing, at one moment. A script, because between reading a
-- state and writing it nobody else may come, and because one round trip is all it may take.
--
-- KEYS[i]      the state of tier i, which is one quota of one limit for one caller. All share a slot.
-- ARGV[1]      what to do:
--   take       take all if all fit, else nothing
--   peek       nothing
--   count      of each by itself: take it if it fits, else what is left of it
--   charge     take all, whether they fit or not
--   refund     give back of each what nobody has a receipt for
--   settle     charge what costs more than zero, give back by receipt what costs less
--   reset      forget all
-- ARGV[i + 1]  the numbers of tier i as packed doubles, little end first, so that no digit is lost on the way:
--   kind       the algorithm, see the end of the file that comes before this one
--   cost       what is asked, in the algorithm's units
--   rate, depth, unit, period, extra: see the algorithm
--   mark_at, mark_owed, mark_fallen, mark_born: to settle only, the receipt
--
-- Answer: packed doubles. `now`; then for each tier whether it fits (1 or 0), three numbers that its algorithm tells, when it was
-- born and how far it fell. What was taken is not part of it yet, except after a charge, a refund, or a count that did
-- not fit. All that callers want to know follows from this, and is worked out by those who ask. To a reset: how many counted.
local todo = ARGV[1]
local answer = { now }

local function tier(i)
  local t = { key = KEYS[i] }
  t.kind, t.cost, t.rate, t.depth, t.unit, t.period, t.extra, t.mark_at, t.mark_owed, t.mark_fallen, t.mark_born =
    struct.unpack(todo == 'settle' and '<ddddddddddd' or '<ddddddd', ARGV[i + 1])
  t.algorithm = kinds[t.kind]
  t.algorithm.read(t)
  return t
end

local function tell(t, fits)
  local n = #answer
  answer[n + 1] = fits and 1 or 0
  answer[n + 2], answer[n + 3], answer[n + 4] = t.algorithm.tell(t, fits)
  answer[n + 5], answer[n + 6] = t.born, t.fallen or 0
end

local function take(t, cost)
  if cost > 0 then
    t.algorithm.raise(t, cost)
    t.algorithm.write(t)
  end
end

local function fits(t)
  return t.cost == 0 or t.algorithm.fits(t, t.cost)
end

if todo == 'take' or todo == 'peek' then
  local tiers, all = {}, todo == 'take'
  for i = 1, #KEYS do
    local t = tier(i)
    local one = fits(t)
    tell(t, one)
    tiers[i], all = t, all and one
  end
  if all then
    for i = 1, #tiers do
      take(tiers[i], tiers[i].cost)
    end
  end
elseif todo == 'count' then
  for i = 1, #KEYS do
    local t = tier(i)
    if fits(t) then
      tell(t, true)
      take(t, t.cost)
    else
      take(t, t.algorithm.rest(t))
      tell(t, false)
    end
  end
elseif todo == 'charge' then
  for i = 1, #KEYS do
    local t = tier(i)
    take(t, t.cost)
    tell(t, true)
  end
elseif todo == 'refund' then
  for i = 1, #KEYS do
    local t = tier(i)
    if t.cost > 0 and t.algorithm.lower(t, t.cost) then
      t.algorithm.write(t)
    end
    tell(t, true)
  end
elseif todo == 'settle' then
  for i = 1, #KEYS do
    local t = tier(i)
    take(t, t.cost)
    if t.cost < 0 and t.born == t.mark_born and t.algorithm.back(t, -t.cost) then
      t.algorithm.write(t)
    end
  end
elseif todo == 'reset' then
  local counted = 0
  for i = 1, #KEYS do
    local t = tier(i)
    if t.known and t.algorithm.counts(t) then
      counted = counted + 1
    end
    if t.known then
      t.algorithm.reset(t)
      t.algorithm.write(t)
    end
  end
  return counted
else
  return redis.error_reply('ERR tollgate: nothing is called ' .. todo)
end
return struct.pack('<' .. string.rep('d', #answer), unpack(answer))
