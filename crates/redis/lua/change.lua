-- Changes any number of states, each by itself, at one moment.
--
-- KEYS[i]      the state of tier i, which is one quota of one limit for one caller. All share a slot.
-- ARGV[1]      what to do:
--   count      take it if it fits, else what is left of it
--   charge     take it, whether it fits or not
--   refund     give back what nobody has a receipt for
--   settle     charge what costs more than zero, give back by receipt what costs less
--   reset      forget it
-- ARGV[i + 1]  the numbers of tier i as in decide.lua; then, to settle only, the receipt:
--   mark_at, mark_owed, mark_fallen, mark_born, whole (1 if all of it comes back)
--
-- Answer: as in decide.lua, but what was taken or given back is part of it, except for a count that fits. To a reset: how many
-- of them counted.
local todo = ARGV[1]
local answer, counted = struct.pack('<d', now), 0
for i = 1, #KEYS do
  local t = { key = KEYS[i], fallen = 0, height = 0, born = now, out = 0, tail = '' }
  local kind
  kind, t.cost, t.rate, t.depth, t.unit, t.period, t.extra, t.mark_at, t.mark_owed, t.mark_fallen, t.mark_born, t.whole =
    struct.unpack(todo == 'settle' and '<dddddddddddd' or '<ddddddd', ARGV[i + 1])
  local algorithm = kinds[kind]
  algorithm.read(t)
  local fits = todo ~= 'count' or t.cost == 0 or algorithm.fits(t, t.cost)
  local first, second, third = algorithm.tell(t, fits)
  -- How much is taken, if any.
  local size = todo == 'count' and not fits and algorithm.rest(t) or t.cost
  if todo == 'refund' then
    if size > 0 and algorithm.lower(t, size) then
      algorithm.write(t)
    end
  elseif todo == 'reset' then
    counted = counted + (algorithm.counts(t) and 1 or 0)
    if t.known then
      t.born = math.max(now, t.born + 1)
      algorithm.reset(t)
      algorithm.write(t)
    end
  elseif size > 0 then
    algorithm.take(t, size)
  elseif size < 0 and t.born == t.mark_born and algorithm.back(t, -size) then
    algorithm.write(t)
  end
  if todo ~= 'count' or not fits then
    first, second, third = algorithm.tell(t, fits)
  end
  answer = answer .. struct.pack('<dddddd', fits and 1 or 0, first, second, third, t.born, t.fallen)
end
return todo == 'reset' and counted or answer
