-- KEYS lock, fence, marker; then lock, fence of every further lock; then queue of every lock
-- ARGV token, ttl_ms, candidate_us, card, clamp_us, fence_ttl_ms, member, order_us, patience_ms, count, channel, marker
-- answers {1, fence, …} granted, one for each · {0, pttl, fence, place} one is held · {-1}, {-2, ms}, {-4} as acquire.lua
--
-- Every key is looked at before the first is written: all or nothing.

if refusal then return refusal end
local token, count, now_ms = ARGV[1], tonumber(ARGV[10]), math.floor(now / 1000)
local held = count > 1 and redis.call('MGET', unpack(KEYS, 4, 2 * count + 1)) or {}
table.insert(held, 1, seen[2])
table.insert(held, 1, seen[1])
local function key(i) return i == 1 and 1 or 2 * i end

for i = 1, count do
  local holder = held[2 * i - 1]
  if holder and holder ~= token then
    local member, order, queue, place = ARGV[7], ARGV[8], KEYS[2 * count + 1 + i], 0
    if member ~= '' then
      -- Those who are good for nothing any more: nobody else would take them away (see turn.lua).
      local over = redis.call('ZRANGEBYSCORE', queue, -now_ms, -1, 'LIMIT', 0, 100)
      for _, one in ipairs(over) do redis.call('ZREM', queue, one, string.sub(one, 3)) end
      local clamp = tonumber(ARGV[5])
      order = math.min(math.max(tonumber(order), now - clamp), now + clamp)
      order = string.format('%.0f', redis.call('ZSCORE', queue, member) or order)
      redis.call('ZADD', queue, order, member, -(now_ms + ARGV[9]), 'u:' .. member)
      if redis.call('PTTL', queue) < tonumber(ARGV[9]) then redis.call('PEXPIRE', queue, 2 * ARGV[9] + 1000) end
      place = redis.call('ZCOUNT', queue, 0, '(' .. order)
      -- Who was told that another of them is free, and cannot use it, passes that on.
      for j = 1, count do
        local other = KEYS[2 * count + 1 + j]
        if j ~= i and redis.call('ZREM', other, member, 'u:' .. member) > 0 and not held[2 * j - 1] then
          tell(other, ARGV[11], '')
        end
      end
    end
    local fence = tonumber(string.match(held[2 * i] or '', '^%d+')) or 0
    return {0, redis.call('PTTL', KEYS[key(i)]), fence, place}
  end
  -- MGET shows a key of another type as missing.
  if not holder and redis.call('EXISTS', KEYS[key(i)]) == 1 then return {OTHER_KIND} end
end

local clamp = tonumber(ARGV[5])
local candidate = math.min(math.max(tonumber(ARGV[3]), now - clamp), now + clamp)
local answer = {1}
for i = 1, count do
  local fence = tonumber(string.match(held[2 * i] or '', '^%d+')) or 0
  if held[2 * i - 1] ~= token then
    fence = math.max(fence + 1, candidate)
    redis.call('SET', KEYS[key(i)], token, 'PX', ARGV[2])
    local said = string.format('%.0f %.0f %s %s', fence, now, string.sub(token, 1, 8), ARGV[4])
    redis.call('SET', KEYS[key(i) + 1], said, 'PX', ARGV[6])
    --+ note_grant(KEYS[key(i)], fence, now, token, ARGV[4])
  end
  answer[i + 1] = fence
  -- Its ticket keeps its place for as long as the locks live without renewal (see turn.lua).
  if ARGV[7] ~= '' then
    redis.call('ZADD', KEYS[2 * count + 1 + i], 'XX', -(now_ms + ARGV[2]), 'u:' .. ARGV[7])
  end
end
return answer
