-- KEYS lock, fence, marker; then lock, fence of every further lease (or lock, readers); then broken of every lease
-- ARGV fence_ttl_ms; token, ttl_ms, fence of every lease; marker
-- answers {1, said} · {-1} stranger
--   said, a letter for each lease: y stored · n another's, or forced open (see break.lua) · k another kind

if refusal and refusal[1] ~= QUARANTINE then return refusal end

local said = {}
local count = (#ARGV - 2) / 3
for i = 1, count do
  local at = i == 1 and 1 or 2 * i
  local lock, fence = KEYS[at], KEYS[at + 1]
  local token, ttl_ms, least = ARGV[3 * i - 1], ARGV[3 * i], ARGV[3 * i + 1]
  if i > 1 then seen = redis.call('MGET', lock, fence) end
  local shares = string.sub(token, 1, 2) == 'r:' -- (see read.lua)
  local known, card = string.match(seen[2] or '0', '^(%d+)(.*)$')
  local stored = tonumber(known)
  local broken = tonumber(redis.call('GET', KEYS[2 * count + 1 + i]) or 0)
  if broken > tonumber(least) then
    said[i] = 'n'
  elseif shares and (seen[1] == READERS or not seen[1] and redis.call('EXISTS', lock) == 0) then
    local now_ms = math.floor(now / 1000)
    redis.call('ZREMRANGEBYSCORE', fence, '-inf', seen[1] and now_ms or '+inf')
    local until_ms = tonumber(redis.call('ZSCORE', fence, token) or 0)
    redis.call('ZADD', fence, math.max(until_ms, now_ms + ttl_ms), token)
    local last_ms = redis.call('ZRANGE', fence, -1, -1, 'WITHSCORES')[2] - now_ms
    redis.call('SET', lock, READERS, 'PX', last_ms)
    redis.call('PEXPIRE', fence, last_ms)
    said[i] = 'y'
  elseif shares or seen[1] and seen[1] ~= token and (not refusal or stored > tonumber(least)) then
    -- A node in quarantine votes for nobody, so what a disk has brought back may be replaced; but not the lock of a
    -- later holder, by a healing that comes late. Elsewhere only a free lock is ours.
    said[i] = 'n'
  elseif not seen[1] and redis.call('EXISTS', lock) == 1 then
    said[i] = 'k'
  else
    -- One that is there already keeps its time: a healing that arrives late must not shorten a later extension.
    if seen[1] ~= token or redis.call('PTTL', lock) < tonumber(ttl_ms) then
      redis.call('SET', lock, token, 'PX', ttl_ms)
    end
    redis.call('SET', fence, stored < tonumber(least) and least .. card or seen[2], 'PX', ARGV[1])
    said[i] = 'y'
  end
end
return {1, table.concat(said)}
