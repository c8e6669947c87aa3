-- The distinct parts that members of a set by text have after `head` (nothing, or a part itself): each
-- with head and length in front, and its first member. Reads one member for each; `most` of them, if given.

local function frames_in(set, head, most)
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
