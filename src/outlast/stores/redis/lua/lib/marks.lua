-- Marks: trees that are too large to be deleted by one script. The script that deletes such a tree removes
-- its root and marks what is below; remove.lua then removes that in portions. Until it is done no
-- script acts on a run that goes: it asks for {"want", "deleting:ROOT"}, and its caller finishes the
-- deletion first (session.py).
--
-- meta deleting  msgpack map: root → mark, absent if empty. A mark is
--     {kind = "all", after}    all descendants go; `after` is the last that was looked at
--     {kind = "ended", after}  those that have ended go, and if none is left the facts of the tree. Until then
--                              no other one below may end, and no fact is added
--     {kind = "check", at}     a caller reads whether all descendants have ended; a change of any removes the mark

local PORTION = 200  -- runs that one script removes
local LARGE = PORTION  -- trees with more descendants go in portions
local is_removing = false  -- set by the script that removes them

local function save_marks()
    if next(deleting) then
        call('HSET', at('meta'), 'deleting', cmsgpack.pack(deleting))
    else
        call('HDEL', at('meta'), 'deleting')
    end
end

local function set_mark(root, mark)
    deleting = deleting or {}
    local before = deleting[root]
    if not (before and before.kind == 'all') then
        deleting[root] = mark
        save_marks()
    end
end

-- The roots above a run that have a mark, the nearest last.
local function marks_above(id)
    local found, place = {}, string.find(id, '~', 1, true)
    while place do
        local root = sub(id, 1, place - 1)
        if deleting[root] then
            found[#found + 1] = root
        end
        place = string.find(id, '~', place + 1, true)
    end
    return found
end

-- While deciding: whether a run goes with a tree that is being deleted. Then that is to be finished first.
-- `ends`: the run has ended, or is about to.
local function is_going(id, ends)
    if not deleting or is_removing then
        return false
    end
    for _, root in ipairs(marks_above(id)) do
        local kind = deleting[root].kind
        if kind == 'all' or (kind == 'ended' and ends) then
            need('deleting:' .. root)
            return true
        end
    end
    return false
end

-- While deciding: what goes with a life that was replaced may take the facts of the tree with it. New ones wait.
local function need_facts_kept(root)
    if deleting and deleting[root] and deleting[root].kind == 'ended' then
        need('deleting:' .. root)
    end
end

-- A run has changed: who reads whether all runs of its tree have ended has to read again.
local function end_checks(id)
    local has_any = false
    for _, root in ipairs(marks_above(id)) do
        if deleting[root].kind == 'check' then
            deleting[root], has_any = nil, true
        end
    end
    if has_any then
        save_marks()
    end
end
