package terraform

import (
	"maps"
	"slices"

	tfjson "github.com/hashicorp/terraform-json"

	"github.com/fairlead/fairlead/pkg/changeset"
)

// changesOf adds a plan's changes to the change set, with sensitive values masked: those that the tool marks as sensitive, and
// the job's secrets in all other values. keepAll is that of the builder.
func changesOf(p *shownPlan, mask func(string) string, keepAll bool) (*changeset.Builder, error) {
	b := changeset.Builder{KeepAll: keepAll}
	for _, r := range p.ResourceChanges {
		if r.Change == nil {
			continue
		}
		c := changeset.Change{Address: r.Address, Kind: r.Type, Previous: r.PreviousAddress, Reason: string(r.ActionReason)}
		if c.Action, c.Order = actionOf(r.Change); c.Action == "" {
			if r.PreviousAddress == "" {
				continue
			}
			c.Action = changeset.Move
		}
		setValues(&c, r.Change, mask)
		if err := b.Add(c); err != nil {
			return nil, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.OutputChanges)) {
		o := p.OutputChanges[name]
		if o == nil || o.Actions.NoOp() {
			continue
		}
		c := changeset.Change{Address: name}
		c.Action, c.Order = actionOf(o)
		setValues(&c, o, mask)
		if err := b.Output(c); err != nil {
			return nil, err
		}
	}
	return &b, nil
}

func setValues(c *changeset.Change, from *tfjson.Change, mask func(string) string) {
	c.SetValues(from.Before, from.After, changeset.Marks{Unknown: from.AfterUnknown, BeforeSensitive: from.BeforeSensitive, AfterSensitive: from.AfterSensitive}, mask)
}

// actionOf returns the action of a change of the tool, or "" if nothing changes.
func actionOf(c *tfjson.Change) (changeset.Action, changeset.Order) {
	a := c.Actions
	switch {
	case a.CreateBeforeDestroy():
		return changeset.Replace, changeset.CreateFirst
	case a.DestroyBeforeCreate():
		return changeset.Replace, changeset.DeleteFirst
	case c.Importing != nil:
		return changeset.Import, ""
	case a.NoOp():
		return "", ""
	case len(a) == 1:
		return changeset.Action(a[0]), "" // the names of the tool's actions are those of a change set
	}
	return changeset.Update, ""
}
