-- The distinct parts that the members of a lexicographic set have after `head` ("", or a part itself): each with
-- head and length in front, and its first member. A skip scan: one member each, at most `most` of them.

local function prefixes_in(set, head, most)
    head = head or ''
    local found, after = {}, head == '' and '-' or '[' .. head
    local last = head == '' and '+' or '(' .. head .. '\255'
    while not most or #found < most do
        local member = call('ZRANGEBYLEX', set, after, last, 'LIMIT', 0, 1)[1]
        if not member then
            return found
        end
        local size = tonumber(sub(member, #head + 1, #head + 8), 16)
        local frame = sub(member, 1, #head + 8 + size)
        found[#found + 1] = { frame, member }
        after = '(' .. frame .. '\255'
    end
    return found
end
