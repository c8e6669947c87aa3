-- Record, or delete, that a run owns an idempotency key in another partition.
--
-- KEYS     wf:ID:keys, idx:keyed
-- ARGV[2]  msgpack: run, member ("PARTITION NAME"), is_owned
-- Returns  {"done"}

-- include: prelude

local args = cmsgpack.unpack(ARGV[2])
local keys = at('wf:' .. encoded(args.run) .. ':keys')
if args.is_owned then
    call('SADD', keys, args.member)
    call('ZADD', at('idx:keyed'), '0', args.run)
else
    call('SREM', keys, args.member)
    if call('EXISTS', keys) == 0 then
        call('ZREM', at('idx:keyed'), args.run)
    end
end
return { 'done' }
