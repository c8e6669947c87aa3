-- Create a partition, or check that it belongs to this store.
--
-- KEYS     meta  HASH  format, partitions, created, identity
-- ARGV[2]  msgpack: format, partitions, identity (for a new partition)
-- Returns  {format, partitions, identity} as the partition has them

-- include: prelude

local args = cmsgpack.unpack(ARGV[2])
local meta = at('meta')
if call('EXISTS', meta) == 0 then
    call(
        'HSET', meta, 'format', args.format, 'partitions', args.partitions, 'created', now_text,
        'identity', args.identity
    )
end
return call('HMGET', meta, 'format', 'partitions', 'identity')
