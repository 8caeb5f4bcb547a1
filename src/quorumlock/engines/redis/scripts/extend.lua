-- KEYS lock, fence, marker; then lock, fence of every further lease; of one that shares: lock, readers
-- ARGV fence_ttl_ms; token, ttl_ms, fence of every lease; marker
-- answers {1, said} · in quarantine {1, said, ms left of it} · {-1} stranger
--   said, a letter for each lease: y renewed · n another's · a absent · k another kind
--     in quarantine: q renewed, but this is no vote · m missing, whatever a disk may have brought back instead

local quarantined = refusal and refusal[1] == QUARANTINE
if refusal and not quarantined then return refusal end

local said = {}
for i = 1, (#ARGV - 2) / 3 do
  local at = i == 1 and 1 or 2 * i
  local lock, fence = KEYS[at], KEYS[at + 1]
  local token, ttl_ms, least = ARGV[3 * i - 1], ARGV[3 * i], ARGV[3 * i + 1]
  if i > 1 then seen = redis.call('MGET', lock, fence) end
  if string.sub(token, 1, 2) == 'r:' then -- it shares the lock (see read.lua)
    local now_ms = math.floor(now / 1000)
    local until_ms = tonumber(redis.call('ZSCORE', fence, token) or 0)
    if seen[1] ~= READERS or until_ms <= now_ms then
      said[i] = quarantined and 'm' or seen[1] and seen[1] ~= READERS and 'n' or 'a'
    else
      if until_ms < now_ms + ttl_ms then redis.call('ZADD', fence, now_ms + ttl_ms, token) end
      local last_ms = redis.call('ZRANGE', fence, -1, -1, 'WITHSCORES')[2] - now_ms
      redis.call('PEXPIRE', lock, last_ms)
      redis.call('PEXPIRE', fence, last_ms)
      said[i] = quarantined and 'q' or 'y'
    end
  elseif seen[1] == token then
    if redis.call('PTTL', lock) < tonumber(ttl_ms) then redis.call('PEXPIRE', lock, ttl_ms) end
    local known, card = string.match(seen[2] or '0', '^(%d+)(.*)$')
    if tonumber(known) < tonumber(least) then
      redis.call('SET', fence, least .. card, 'PX', ARGV[1])
    else
      redis.call('PEXPIRE', fence, ARGV[1])
    end
    said[i] = quarantined and 'q' or 'y'
  elseif quarantined then
    said[i] = 'm'
  elseif seen[1] then
    said[i] = 'n'
  else
    -- MGET shows a key of another type as missing.
    said[i] = redis.call('EXISTS', lock) == 1 and 'k' or 'a'
  end
end
return {1, table.concat(said), quarantined and refusal[2] or nil}
