-- Deletions of trees that are too large for one script. The script that deletes such a tree deletes its root and
-- records a deletion for the descendants; delete_portion.lua then deletes those in portions. Until it is done
-- no script acts on a run of the tree: it returns {"want", "deleting:ROOT"}, and the caller finishes the
-- deletion first (session.py).
--
-- meta deleting  msgpack map: root → deletion, absent if empty. A deletion is
--     {kind = "all", after}    all descendants are deleted; `after` is the last one that was visited
--     {kind = "ended", after}  finished descendants are deleted and, if none is left, the facts of the tree. Until
--                              then no other descendant may end, and no fact is added
--     {kind = "check", at}     a caller reads whether all descendants have ended; a change of one cancels it

local PORTION = 200  -- runs that one script removes
local LARGE = PORTION  -- trees with more descendants go in portions
local is_removing = false  -- set by the script that removes them

local function save_deletions()
    if next(deleting) then
        call('HSET', at('meta'), 'deleting', cmsgpack.pack(deleting))
    else
        call('HDEL', at('meta'), 'deleting')
    end
end

local function set_deletion(root, deletion)
    deleting = deleting or {}
    local before = deleting[root]
    if not (before and before.kind == 'all') then
        deleting[root] = deletion
        save_deletions()
    end
end

-- The roots above a run that have a deletion, nearest last.
local function deletions_above(id)
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

-- While deciding: whether a run belongs to a tree that is being deleted; that is finished first.
-- `ends`: the run has ended, or is about to.
local function is_being_deleted(id, ends)
    if not deleting or is_removing then
        return false
    end
    for _, root in ipairs(deletions_above(id)) do
        local kind = deleting[root].kind
        if kind == 'all' or (kind == 'ended' and ends) then
            need('deleting:' .. root)
            return true
        end
    end
    return false
end

-- While deciding: the deletion of a replaced life may delete the facts of the tree, so new facts wait for it.
local function need_facts_kept(root)
    if deleting and deleting[root] and deleting[root].kind == 'ended' then
        need('deleting:' .. root)
    end
end

-- A run has changed: a caller that reads whether all runs of its tree have ended has to read again.
local function cancel_checks(id)
    local has_any = false
    for _, root in ipairs(deletions_above(id)) do
        if deleting[root].kind == 'check' then
            deleting[root], has_any = nil, true
        end
    end
    if has_any then
        save_deletions()
    end
end
