-- The distinct first parts of the members of a set that is sorted by text: the workflows that have
-- something on a shelf, the queues that have tasks. Reads one member for each.
--
-- KEYS     the set
-- ARGV[2]  msgpack list of names of sets
-- Returns  {{part, first member}, …}

-- include: head

local found, seen = {}, {}
for _, name in ipairs(cmsgpack.unpack(ARGV[2])) do
    local after = '-'
    while true do
        local member = call('ZRANGEBYLEX', at(name), after, '+', 'LIMIT', 0, 1)[1]
        if not member then
            break
        end
        local size = tonumber(sub(member, 1, 8), 16)
        local frame = sub(member, 9, 8 + size)
        found[#found + 1] = { frame, member }
        after = '(' .. sub(member, 1, 8 + size) .. '\255'
    end
end
return found
