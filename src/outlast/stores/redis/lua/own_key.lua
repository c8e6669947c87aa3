-- Note, or forget, that a run owns an idempotency key in another partition.
--
-- KEYS     wf:ID:keys, idx:keyed
-- ARGV[2]  msgpack: run, member ("PARTITION NAME"), is_owned
-- Returns  {"done"}

-- include: head

local wish = cmsgpack.unpack(ARGV[2])
local keys = at('wf:' .. encoded(wish.run) .. ':keys')
if wish.is_owned then
    call('SADD', keys, wish.member)
    call('ZADD', at('idx:keyed'), '0', wish.run)
else
    call('SREM', keys, wish.member)
    if call('EXISTS', keys) == 0 then
        call('ZREM', at('idx:keyed'), wish.run)
    end
end
return { 'done' }
