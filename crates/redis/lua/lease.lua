-- Decides as decide.lua does, and lends to a node at the same time: what it may then spend by itself, without asking.
--
-- KEYS[i]      the state of tier i, which is one quota of one limit for one caller. All share a slot.
-- ARGV[1]      `lease`
-- ARGV[i + 1]  the numbers of tier i as in decide.lua; then, in units but for node, number and time:
--   node       who asks
--   number     of the call, which grows with every call of this node; zero where nothing is lent
--   left       what the node has not spent, of what it had on lease
--   keep       how much of that it goes on having; the rest comes back
--   want       how much more it would like to have, beside the cost
--   time       how long all of it may be spent, in microseconds
--
-- A lease is no admission yet. What is out on lease is kept free, so that what is owed and what is out never exceed the depth
-- together; what a node says it has spent is owed from that moment. So in any span, what was spent is at most what became owed in
-- it and what is out at its end. A node that is not heard of in time counts as having spent all.
--
-- A call that was overtaken by a later one of the same node (on another connection) neither reports nor borrows.
--
-- A lease is at most half of what is free without it, divided by all who have one: the nearer to the limit, the smaller, and none
-- at all for less than two. A refusal lends nothing.
--
-- Answer: as in decide.lua, but after what the node reports; and for each tier two more: how much was lent, and whether what the
-- node says is left of its lease is known here. If not, because the state was lost, it is worth nothing.

-- Takes the node's report.
local function hear(t)
  local number, amount, ends = level_leases(t, t.node)
  t.heard = not number or number < t.number
  if t.heard then
    t.knew, t.had = number ~= nil, number ~= nil and t.left <= amount
    t.left, t.keep = t.had and t.left or 0, t.had and t.keep or 0
    if t.left < amount then
      t.height = level_owed(t) + amount - t.left
    end
    t.out = t.out + t.keep
  else
    level_lend(t, t.node, number, amount, ends)
    level_tail(t)
  end
end

-- How much more it gets.
local function lends(t)
  local free = t.depth - level_owed(t) - t.out + t.keep
  local share = math.floor(free / (2 * #t.leases + 2) / t.unit) * t.unit
  local more = math.min(t.want, share - t.keep)
  return more > 0 and t.keep + more >= 2 * t.unit and more or 0
end

local tiers, all = {}, true
for i = 1, #KEYS do
  local t = { key = KEYS[i], tick = 0, height = 0, fallen = 0, born = now, known = false, out = 0, tail = '', lent = 0 }
  local kind
  kind, t.cost, t.rate, t.depth, t.unit, t.period, t.extra, t.node, t.number, t.left, t.keep, t.want, t.time =
    struct.unpack('<ddddddddddddd', ARGV[i + 1])
  t.algorithm = kinds[kind]
  t.algorithm.read(t)
  if t.number > 0 then
    hear(t)
  end
  t.fits = t.cost == 0 or t.algorithm.fits(t, t.cost)
  t.told, t.second, t.third = t.algorithm.tell(t, t.fits)
  tiers[i], all = t, all and t.fits
end
local answer = { struct.pack('<d', now) }
for i = 1, #tiers do
  local t = tiers[i]
  if t.heard then
    if all then
      t.height = t.cost > 0 and level_owed(t) + t.cost or t.height
      t.lent = lends(t)
    end
    t.out = t.out - t.keep
    if t.keep + t.lent > 0 then
      level_lend(t, t.node, t.number, t.keep + t.lent, now + t.time)
    end
    level_tail(t)
    if t.knew or t.lent > 0 or (all and t.cost > 0) then
      level_write(t)
    end
  elseif all and t.cost > 0 then
    t.algorithm.take(t, t.cost)
  end
  answer[i + 1] = struct.pack('<dddddddd',
    t.fits and 1 or 0, t.told, t.second, t.third, t.born, t.fallen, t.lent, t.had and 1 or 0)
end
return table.concat(answer)
