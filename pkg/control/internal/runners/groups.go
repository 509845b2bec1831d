package runners

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/placement"
	"github.com/fairlead/fairlead/pkg/store"
)

// maxGroupPath is the longest path of a group, in bytes. The table key of a group's
// member contains the path and the member's name, and a key has at most 1,024 bytes.
const maxGroupPath = 900

// Group is a group of installs and runners.
type Group struct {
	fairlead.Actors
	Path        placement.Path
	Description string
	Created     time.Time
}

func groupOf(g store.Group) Group {
	return Group{Actors: g.Actors, Path: g.Path, Description: g.Description, Created: g.Created}
}

// namedGroup parses the path of a group that can be created and deleted. It refuses the
// root group.
func namedGroup(path string) (placement.Path, error) {
	p, err := placement.ParsePath(path)
	switch {
	case err != nil:
		return p, err
	case p == "":
		return p, fairlead.Invalid(fairlead.CodeInvalidGroup, "the root group always exists and cannot be created or changed")
	case len(p) > maxGroupPath:
		return p, fairlead.Invalid(fairlead.CodeInvalidGroup, "the path of the group is longer than %d bytes", maxGroupPath)
	}
	return p, nil
}

// EnterGroup makes the commit depend on the group: the group must exist and must not be
// in deletion.
func EnterGroup(tx *kernel.Tx, org fairlead.OrgID, path placement.Path) error {
	if path == "" {
		return nil
	}
	g, err := tx.Store.Group(tx.Ctx, org, path)
	if fairlead.KindOf(err) == fairlead.KindNotFound {
		e := fairlead.NotFound(fairlead.CodeGroupNotFound, path.String())
		e.Hint = "Create it with {group.create}."
		e.Args = fairlead.Args{Group: path.String()}
		return e
	}
	if err != nil {
		return err
	}
	if g.V.Leaving {
		return fairlead.Conflict(fairlead.CodeGroupNotEmpty, "group %s is being deleted", path)
	}
	tx.CheckGroup(g)
	return nil
}

// CreateGroup creates a group. Its parent must exist.
func (f *Fleet) CreateGroup(ctx context.Context, org fairlead.OrgID, path, description, key string) (Group, error) {
	p, err := namedGroup(path)
	if err != nil {
		return Group{}, err
	}
	made := f.IDs(kernel.PrefixCommit)
	err = f.Transact(ctx, "create group "+path, func(tx *kernel.Tx) error {
		old, found := f.Store.Group(ctx, org, p)
		if again, err := tx.Seen(kernel.Once{Org: org, Route: "create-group", Key: key, Body: []string{path, description}}, path); err != nil || again != "" {
			return err
		}
		switch {
		case found == nil && old.V.Made == made:
			return nil // our own earlier commit, whose outcome was unclear
		case found == nil:
			return fairlead.Conflict(fairlead.CodeGroupExists, "there is a group %s already", p)
		case fairlead.KindOf(found) != fairlead.KindNotFound:
			return found
		}
		if err := EnterGroup(tx, org, p.Parent()); err != nil {
			return err
		}
		tx.PutGroup(store.Stored[store.Group]{V: store.Group{Org: org, Path: p, Description: description, Made: made, Created: tx.Now}})
		return nil
	})
	if err != nil {
		return Group{}, err
	}
	return f.Group(ctx, org, path)
}

// Group returns a group.
func (f *Fleet) Group(ctx context.Context, org fairlead.OrgID, path string) (Group, error) {
	return ReadGroup(f.Reading(ctx), org, path)
}

// ReadGroup returns a group by its path.
func ReadGroup(tx *kernel.Tx, org fairlead.OrgID, path string) (Group, error) {
	p, err := placement.ParsePath(path)
	if err != nil || p == "" {
		return Group{Path: p}, err
	}
	g, err := tx.Store.Group(tx.Ctx, org, p)
	return groupOf(g.V), err
}

// Groups lists groups by path.
func (f *Fleet) Groups(ctx context.Context, org fairlead.OrgID, q fairlead.PageQuery) ([]Group, string, error) {
	p, err := f.Store.Groups(ctx, org, q)
	return kernel.List(p, err, groupOf)
}

// UpdateGroup changes the description of a group.
func (f *Fleet) UpdateGroup(ctx context.Context, org fairlead.OrgID, path, description string) (Group, error) {
	p, err := namedGroup(path)
	if err != nil {
		return Group{}, err
	}
	err = f.Transact(ctx, "update group "+path, func(tx *kernel.Tx) error {
		g, err := f.Store.Group(ctx, org, p)
		if err != nil {
			return err
		}
		g.V.Description = description
		tx.PutGroup(g)
		return nil
	})
	if err != nil {
		return Group{}, err
	}
	return f.Group(ctx, org, path)
}

// markUnused prepares the deletion of a record that must not be in use. It checks that
// the record is unused, marks the record as leaving, and checks again. After the mark,
// no new use of the record can begin. The parameter inUse is the code of the error that
// unused returns for a record in use. If the record is in use, markUnused removes the
// mark, also a mark that an interrupted deletion left. If a deletion of an unused record
// was interrupted, the next request continues the deletion.
func markUnused(inUse fairlead.Code, unused func() error, mark func(leaving bool) error) error {
	if err := unused(); err != nil {
		if fairlead.CodeOf(err) == inUse { // an interrupted deletion may have left its mark
			err = errors.Join(err, mark(false))
		}
		return err
	}
	if err := mark(true); err != nil {
		return err
	}
	if err := unused(); err != nil {
		return errors.Join(err, mark(false))
	}
	return nil
}

// DeleteGroup deletes an empty group.
func (f *Fleet) DeleteGroup(ctx context.Context, org fairlead.OrgID, path string) error {
	p, err := namedGroup(path)
	if err != nil {
		return err
	}
	err = markUnused(fairlead.CodeGroupNotEmpty, func() error { return empty(f.Reading(ctx), org, p) },
		func(leaving bool) error { return f.markGroup(ctx, org, p, leaving) })
	if err != nil {
		return err
	}
	return f.Transact(ctx, "delete group "+path, func(tx *kernel.Tx) error {
		g, err := f.Store.Group(ctx, org, p)
		if err != nil {
			return tx.Deleted(err)
		}
		if !g.V.Leaving {
			return fairlead.Conflict(fairlead.CodeGroupNotEmpty, "group %s is in use again", p)
		}
		tx.DropVariables(org, store.Scope{Kind: store.ScopeGroup, Name: p.String()})
		tx.DeleteGroup(g)
		return nil
	})
}

func (f *Fleet) markGroup(ctx context.Context, org fairlead.OrgID, p placement.Path, leaving bool) error {
	return f.Transact(ctx, "delete group "+p.String(), func(tx *kernel.Tx) error {
		g, err := f.Store.Group(ctx, org, p)
		if err != nil || g.V.Leaving == leaving {
			return err
		}
		g.V.Leaving = leaving
		tx.PutGroup(g)
		return nil
	})
}

// empty returns nil if a group has no members. Otherwise it returns an error with the
// members' names.
func empty(tx *kernel.Tx, org fairlead.OrgID, p placement.Path) error {
	if _, err := tx.Store.Group(tx.Ctx, org, p); err != nil {
		return err
	}
	const named = 20
	below, err := tx.Store.GroupsBelow(tx.Ctx, org, p, named)
	if err != nil {
		return err
	}
	members, err := tx.Store.Members(tx.Ctx, org, p, named)
	if err != nil {
		return err
	}
	var holds []string
	for _, g := range below {
		holds = append(holds, "group "+g.V.Path.String())
	}
	for _, m := range members {
		holds = append(holds, strings.ToLower(m.V.Kind)+" "+m.V.Name)
	}
	if len(holds) == 0 {
		return nil
	}
	slices.Sort(holds)
	return &fairlead.Error{Kind: fairlead.KindConflict, Code: fairlead.CodeGroupNotEmpty,
		Message: fmt.Sprintf("group %s is not empty: it holds %s", p, strings.Join(holds[:min(named, len(holds))], ", ")),
		Hint:    "Forget its installs, delete its runners or move them to another group, and delete the groups below it first."}
}
