-- Decides about any number of limits at once: all of them, or nothing, at one moment. A script, because between reading a
-- state and writing it nobody else may come, and because one round trip is all it may take.
--
-- KEYS[i]      the state of tier i, which is one quota of one limit for one caller. All share a slot.
-- ARGV[1]      what to do:
--   take       take all if all fit, else nothing
--   peek       take nothing
-- ARGV[i + 1]  the numbers of tier i as packed doubles, little end first, so that no digit is lost on the way:
--   kind       the algorithm, see the line before this file
--   cost       what is asked, in the algorithm's units
--   rate, depth, unit, period, extra: see the algorithm
--
-- Answer: packed doubles. `now`; then for each tier whether it fits (1 or 0), three numbers that its algorithm tells, when it was
-- born and how far it fell. What is taken is not part of it yet. All that callers want to know follows from this, and is
-- worked out by those who ask.
local answer, tiers, all = nil, {}, ARGV[1] == 'take'
for i = 1, #KEYS do
  local kind, cost, rate, depth, unit, period, extra = struct.unpack('<ddddddd', ARGV[i + 1])
  local algorithm = kinds[kind]
  local t = {
    key = KEYS[i], algorithm = algorithm,
    cost = cost, rate = rate, depth = depth, unit = unit, period = period, extra = extra,
    tick = 0, height = 0, fallen = 0, born = now, known = false, out = 0, tail = '',
  }
  algorithm.read(t)
  local fits = cost == 0 or algorithm.fits(t, cost)
  local first, second, third = algorithm.tell(t, fits)
  if answer then
    answer = answer .. struct.pack('<dddddd', fits and 1 or 0, first, second, third, t.born, t.fallen)
  else
    answer = struct.pack('<ddddddd', now, fits and 1 or 0, first, second, third, t.born, t.fallen)
  end
  tiers[i], all = t, all and fits
end
if all then
  for i = 1, #tiers do
    if tiers[i].cost > 0 then
      tiers[i].algorithm.take(tiers[i], tiers[i].cost)
    end
  end
end
return answer
