-- Between standing.lua and acquire.lua or read.lua, for whoever waits or does not overtake: the queue of a lock.
-- KEYS[4] queue
-- ARGV[7..14] member ('' without a ticket), order_us, patience_ms, strict, grace_ms, channel, shared, again (1 or 0)
-- answers {0, ms, fence, place}: held for so long, or somebody else's turn; `place` wait in front
--
-- The queue is one sorted set. A member is `locker:id`, ending in `~r` if it wants to share, and its score when it
-- came, in µs; with it goes `u:member`, whose score is -(when it is good for nothing any more), in ms of this node's
-- time. Whoever is offered a free lock and leaves it for `grace_ms` is passed over: that time is brought forward. Who
-- asks for the first time offers nothing (`again`): the release has just told the head, or it will ask by itself.

if refusal then return refusal end
local member, order, patience_ms, strict, grace_ms, channel, shared, again = unpack(ARGV, 7, 14)
local queue, now_ms = KEYS[4], math.floor(now / 1000)
shared, again, strict = shared == '1', again == '1', strict == '1'
local mine = seen[1] == ARGV[1]
local readers = shared and seen[1] == READERS
local free = not seen[1] or mine or readers

if again or strict and free then
  local over = redis.call('ZRANGEBYSCORE', queue, -now_ms, -1, 'LIMIT', 0, 100)
  for _, one in ipairs(over) do redis.call('ZREM', queue, one, string.sub(one, 3)) end
end
if member ~= '' and (strict or not free) then
  local clamp = tonumber(ARGV[5])
  order = math.min(math.max(tonumber(order), now - clamp), now + clamp)
  if again then order = tonumber(redis.call('ZSCORE', queue, member) or order) end -- it keeps the place it was given
end

local place, wait_ms = 0, 0
if not free then
  wait_ms = left_ms or redis.call('PTTL', lock)
  if wait_ms == 0 then wait_ms = 1 end
elseif strict and not mine then
  while true do
    -- Who wants to share stands behind the first who does not.
    local heads = redis.call('ZRANGEBYSCORE', queue, 0, '+inf', 'WITHSCORES', 'LIMIT', 0, shared and 100 or 1)
    local at = 1
    while shared and heads[at] and string.sub(heads[at], -2) == '~r' do at = at + 2 end
    local head, came = heads[at], tonumber(heads[at + 1])
    if not head or head == member then break end
    if member ~= '' and (came > order or came == order and head > member) then break end
    if readers then -- it is not free: nobody is to be told, and nobody to be passed over
      wait_ms = math.max(1, redis.call('PTTL', lock))
      break
    end
    wait_ms = tonumber(grace_ms)
    if not again then break end
    local locker, id = string.match(head, '^([^:]*):(.*)$')
    local told = locker == '' and 1 or redis.pcall('PUBLISH', channel .. locker, id)
    if told ~= 0 then
      local until_ms = -tonumber(redis.call('ZSCORE', queue, 'u:' .. head) or 0)
      wait_ms = math.max(1, math.min(until_ms - now_ms, wait_ms))
      redis.call('ZADD', queue, -(now_ms + wait_ms), 'u:' .. head)
      break
    end
    wait_ms = 0
    redis.call('ZREM', queue, head, 'u:' .. head) -- nobody is there any more
  end
end
if member ~= '' and wait_ms == 0 and (slot or shared) then
  -- There may be room for more: the next to be told is not who was just let in.
  redis.call('ZREM', queue, member, 'u:' .. member)
elseif member ~= '' then
  -- Granted, it keeps its place for as long as the lock lives without renewal: if the attempt fails elsewhere, it is
  -- not behind those who came later. Its release takes it away.
  local lasts_ms = wait_ms == 0 and tonumber(ARGV[2]) or tonumber(patience_ms)
  if strict or wait_ms ~= 0 then
    redis.call('ZADD', queue, string.format('%.0f', order), member, -(now_ms + lasts_ms), 'u:' .. member)
    if redis.call('PTTL', queue) < lasts_ms then redis.call('PEXPIRE', queue, 2 * lasts_ms + 1000) end
  elseif again then
    redis.call('ZADD', queue, 'XX', -(now_ms + lasts_ms), 'u:' .. member)
  end
end
if wait_ms ~= 0 then
  if member ~= '' then place = redis.call('ZCOUNT', queue, 0, '(' .. string.format('%.0f', order)) end
  return {0, wait_ms, stored, place}
end
