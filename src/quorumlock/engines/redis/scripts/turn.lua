-- Between standing.lua and acquire.lua, for whoever waits or does not overtake: the queue of a lock.
-- KEYS[4] queue
-- ARGV[6..11] member ('' without a ticket), order_us, patience_ms, strict (1 or 0), grace_ms, channel
-- answers {0, ms, fence, place}: held for so long, or somebody else's turn; `place` wait in front
--
-- The queue is one sorted set. A member is `locker:id`, and its score when it came, in µs; with it goes `u:member`,
-- whose score is -(when it is good for nothing any more), in ms of this node's time. Whoever is offered a free lock and
-- leaves it for `grace_ms` is passed over: that time is brought forward.

if refusal then return refusal end
local member, order, patience_ms, strict, grace_ms, channel = unpack(ARGV, 6, 11)
local queue, now_ms = KEYS[4], math.floor(now / 1000)
local mine = seen[1] == ARGV[1]

local over = redis.call('ZRANGEBYSCORE', queue, -now_ms, -1, 'LIMIT', 0, 100)
for _, one in ipairs(over) do redis.call('ZREM', queue, one, string.sub(one, 3)) end

local place, wait_ms = 0, 0
if member ~= '' then
  local clamp = tonumber(ARGV[4])
  order = math.min(math.max(tonumber(order), now - clamp), now + clamp)
  order = tonumber(redis.call('ZSCORE', queue, member) or order) -- it keeps the place it was given
end
if seen[1] and not mine then
  wait_ms = redis.call('PTTL', KEYS[1])
  if wait_ms == 0 then wait_ms = 1 end
elseif strict == '1' and not mine then
  while true do
    local head = redis.call('ZRANGEBYSCORE', queue, 0, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
    if not head[1] or head[1] == member then break end
    if member ~= '' and tonumber(head[2]) > order then break end
    local locker, id = string.match(head[1], '^([^:]*):(.*)$')
    local told = locker == '' and 1 or redis.pcall('PUBLISH', channel .. locker, id)
    if told ~= 0 then
      local until_ms = -tonumber(redis.call('ZSCORE', queue, 'u:' .. head[1]) or 0)
      wait_ms = math.max(1, math.min(until_ms - now_ms, tonumber(grace_ms)))
      redis.call('ZADD', queue, -(now_ms + wait_ms), 'u:' .. head[1])
      break
    end
    redis.call('ZREM', queue, head[1], 'u:' .. head[1]) -- nobody is there any more
  end
end
if member ~= '' then
  -- Granted, it keeps its place for as long as the lock lives without renewal: if the attempt fails elsewhere, it is
  -- not behind those who came later. Its release takes it away.
  local lasts_ms = wait_ms == 0 and tonumber(ARGV[2]) or tonumber(patience_ms)
  redis.call('ZADD', queue, string.format('%.0f', order), member, -(now_ms + lasts_ms), 'u:' .. member)
  if redis.call('PTTL', queue) < lasts_ms then redis.call('PEXPIRE', queue, lasts_ms + 1000) end
  place = redis.call('ZCOUNT', queue, 0, '(' .. string.format('%.0f', order))
end
if wait_ms ~= 0 then return {0, wait_ms, tonumber(seen[2]) or 0, place} end
