-- KEYS lock, fence, marker, queue, readers
-- ARGV token, ttl_ms, token of the reader, member ('' without a ticket), channel, marker
-- answers {1, fence} shared now · {-5} not ours any more · {-1} stranger · {-2, ms} quarantine

if refusal then return refusal end
if seen[1] ~= ARGV[1] then return {CHANGED} end
local member, channel = ARGV[4], ARGV[5]
if member ~= '' then redis.call('ZREM', KEYS[4], member, 'u:' .. member) end
redis.call('DEL', KEYS[5])
redis.call('ZADD', KEYS[5], math.floor(now / 1000) + ARGV[2], ARGV[3])
redis.call('PEXPIRE', KEYS[5], ARGV[2])
redis.call('SET', lock, READERS, 'PX', ARGV[2])
--+ note_end(lock, ARGV[1], true, '1')
--+ note('acquired', lock, string.format('%.0f', stored), short(ARGV[3]), 'read -')
tell(KEYS[4], channel, '', true)
return {1, stored}
