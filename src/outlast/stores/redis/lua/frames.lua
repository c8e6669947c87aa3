-- The distinct first parts of the members of a set that is sorted by text: the workflows that have
-- something on a shelf, the queues that have tasks. Reads one member for each.
--
-- KEYS     the set
-- ARGV[2]  msgpack list of names of sets
-- Returns  {{part, first member}, …}

-- include: head
-- include: frames

local found = {}
for _, name in ipairs(cmsgpack.unpack(ARGV[2])) do
    for _, pair in ipairs(frames_in(at(name))) do
        found[#found + 1] = { sub(pair[1], 9), pair[2] }
    end
end
return found
