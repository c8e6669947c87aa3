-- List the distinct first parts of the members of lexicographic sets: the workflows with claimable runs, the
-- queues with tasks. A skip scan: it reads one member for each.
--
-- KEYS     the set
-- ARGV[2]  msgpack list of names of sets
-- Returns  {{part, first member}, …}

-- include: prelude
-- include: prefixes

local found = {}
for _, name in ipairs(cmsgpack.unpack(ARGV[2])) do
    for _, pair in ipairs(prefixes_in(at(name))) do
        found[#found + 1] = { sub(pair[1], 9), pair[2] }
    end
end
return found
