package manifest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead/fairlead/pkg/changeset"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/retry"
	"github.com/fairlead/fairlead/runner/plugin"
)

// Apply does what a saved plan says. It changes nothing and returns ReasonPlanStale if the inventory or an object that the plan
// changes has changed since the plan. It calls mutating once, before its first change.
func (e Engine) Apply(ctx context.Context, plan []byte, mutating func()) error {
	r, err := e.begin()
	if err != nil {
		return err
	}
	s, err := decodeSaved(plan)
	if err != nil {
		return err
	}
	if s.Owner != e.Owner.String() || s.Namespace != e.Namespace {
		return plugin.Errorf(fairlead.ReasonPlanElsewhere, "the saved plan is for the component %s in the namespace %s, and this job is for %s in %s", s.Owner, s.Namespace, e.Owner, e.Namespace)
	}
	if r.inv, err = r.readInventory(ctx); err != nil {
		return err
	}
	if r.inv.Job == e.Attempt.Job && r.inv.Epoch > e.Attempt.Epoch {
		return r.superseded(r.inv)
	}
	if now := r.inv.base(); (now == nil) != (s.Base == nil) || now != nil && *now != *s.Base {
		return plugin.Errorf(fairlead.ReasonPlanStale, "another apply has changed the component's objects since this plan was made: plan again")
	}
	if err := r.verify(ctx, s); err != nil {
		return err
	}
	mutating()
	return r.execute(ctx, s)
}

func stale(of ref) error {
	return plugin.Errorf(fairlead.ReasonPlanStale, "%s has changed since the plan was made, so the plan may not describe what would happen: plan again", of)
}

// verify compares each object that the plan changes with its digest in the plan.
func (r *run) verify(ctx context.Context, s saved) error {
	check := func(of ref, planned string) error {
		u, _, err := r.find(ctx, of)
		if err != nil {
			return err
		}
		match, err := matches(u, planned)
		if err != nil {
			return err
		}
		if !match {
			return stale(of)
		}
		if u != nil {
			r.verified[of] = u.GetResourceVersion()
		}
		return nil
	}
	for _, o := range s.Objects {
		if o.Action == "" {
			continue
		}
		if err := check(o.Ref, o.Live); err != nil {
			return err
		}
	}
	for _, m := range s.Removals {
		if err := check(m.Ref, m.Live); err != nil {
			return err
		}
	}
	return nil
}

// matches reports whether an object of the cluster has the planned digest; "": it must not exist.
func matches(u *unstructured.Unstructured, planned string) (bool, error) {
	if u == nil || planned == "" {
		return u == nil && planned == "", nil
	}
	now, err := digest(u)
	return now == planned, err
}

// execute changes the cluster.
func (r *run) execute(ctx context.Context, s saved) error {
	wanted := make([]ref, len(s.Objects))
	for i, o := range s.Objects {
		wanted[i] = o.Ref
	}
	// The inventory's own namespace comes before the inventory. A plan finds it by its annotation.
	for _, o := range s.Objects {
		if isNamespace(o.Ref) && o.Ref.Name == r.Namespace && o.Action == changeset.Create {
			if err := r.write(ctx, o, false); err != nil {
				return err
			}
		}
	}
	old := slices.Clone(r.inv.Objects)
	for _, m := range s.Removals {
		old = append(old, m.Ref)
	}
	if r.inv.uid != "" || len(wanted) > 0 {
		if err := r.writeInventory(ctx, r.union(old, wanted).Objects); err != nil {
			return err
		}
	}
	for _, definitions := range []bool{true, false} {
		var stage []ref
		for _, o := range s.Objects {
			if (isCRD(o.Ref) || isNamespace(o.Ref)) != definitions {
				continue
			}
			stage = append(stage, o.Ref)
			if o.Action == "" {
				continue
			}
			if err := r.write(ctx, o, true); err != nil {
				return err
			}
		}
		if err := r.awaitReady(ctx, stage); err != nil {
			return err
		}
		if definitions && len(stage) > 0 {
			r.cluster.Reset(ctx)
		}
	}
	if s.Destroy {
		return r.finishDestroy(ctx, s)
	}
	if err := r.remove(ctx, s.Removals, wanted); err != nil {
		return err
	}
	if err := r.writeInventory(ctx, wanted); err != nil {
		return err
	}
	r.logf("The component has %d objects.", len(wanted))
	return nil
}

// finishDestroy deletes everything, and then the inventory. The inventory's own namespace comes after the inventory's last use.
func (r *run) finishDestroy(ctx context.Context, s saved) error {
	var rest []removal
	var home *removal
	for i, m := range s.Removals {
		if isNamespace(m.Ref) && m.Ref.Name == r.Namespace && !m.Forget {
			home = &s.Removals[i]
		} else {
			rest = append(rest, m)
		}
	}
	if err := r.remove(ctx, rest, nil); err != nil {
		return err
	}
	if home == nil {
		if r.inv.uid == "" {
			return nil
		}
		return r.deleteInventory(ctx)
	}
	if r.inv.uid != "" {
		if err := r.writeInventory(ctx, []ref{home.Ref}); err != nil {
			return err
		}
	}
	uid, err := r.removeOne(ctx, *home, nil, s.Removals)
	if err != nil || uid == "" {
		return err
	}
	return r.awaitGone(ctx, map[ref]types.UID{home.Ref: uid})
}

// write makes one object of the cluster what the plan says. It is repeatable: an object that already is so, because the answer to an
// earlier request was lost, is left alone.
func (r *run) write(ctx context.Context, o savedObject, fenced bool) error {
	u := o.unstructured()
	at := action{verb: "patch", did: "apply the object", ref: o.Ref, place: o.Place, secret: isSecret(u)}
	until := r.Now().Add(r.Limits.Ready)
	var err error
	if at.resource, err = r.served(ctx, o.Ref, until); err != nil {
		return err
	}
	replace := o.Action == changeset.Replace // the old object is still to be deleted
	for range attemptsOfConflict {
		if fenced {
			if err := r.fence(ctx); err != nil {
				return err
			}
		}
		live, err := r.get(ctx, at.resource, o.Ref, o.Place)
		if err != nil {
			return err
		}
		if replace && live == nil {
			replace = false // An earlier request has deleted it.
		}
		match, err := r.asPlanned(o, live, replace)
		switch {
		case err != nil:
			return err
		case match && replace:
			if err := r.deleteForReplace(ctx, at, live); err != nil {
				return err
			}
			replace = false
			continue
		case match:
			err = r.put(ctx, at, o, live)
		default:
			err = r.isAlready(ctx, at, u, live)
		}
		if !apierrors.IsConflict(err) {
			return err
		}
	}
	return stale(o.Ref)
}

// asPlanned reports whether the object of the cluster is the one that the plan was made on. After the deletion of a replacement it
// must not exist.
func (r *run) asPlanned(o savedObject, live *unstructured.Unstructured, replace bool) (bool, error) {
	planned := o.Live
	if o.Action == changeset.Replace && !replace {
		planned = ""
	}
	match, err := matches(live, planned)
	// A definition that this apply has changed can change how the server shows an object that has not changed.
	return match || err == nil && live != nil && planned != "" && live.GetResourceVersion() == r.verified[o.Ref], err
}

// put applies an object to the version that was read. It returns the server's conflict if the object has changed since.
func (r *run) put(ctx context.Context, at action, o savedObject, live *unstructured.Unstructured) error {
	// An object that appeared in the meantime has fields of another manager, so a creation without force does not overwrite it.
	_, err := r.apply(ctx, at.resource, o.unstructured(), live, live != nil, false)
	switch {
	case err == nil:
		r.logf("%s: %s.", o.Ref, past[o.Action])
		return nil
	case len(conflicts(err)) > 0 && live == nil:
		return stale(o.Ref)
	case apierrors.IsConflict(err):
		return err
	case noNamespace(err):
		return plugin.Errorf(fairlead.ReasonNamespaceMissing, "%s: the namespace %s of %s does not exist any more: plan again", o.Place, o.Ref.Namespace, r.Mask(o.Ref.String()))
	case apierrors.IsNotFound(err) && live != nil:
		return stale(o.Ref) // deleted since it was read
	}
	return r.failed(ctx, at, err)
}

// isAlready returns nil if the object of the cluster already is what an apply would make it. A write whose answer was lost has done
// so. Otherwise the plan is stale. It returns the server's conflict if the object has changed since it was read.
func (r *run) isAlready(ctx context.Context, at action, u, live *unstructured.Unstructured) error {
	if live == nil || live.GetDeletionTimestamp() != nil {
		return stale(at.ref)
	}
	after, err := r.apply(ctx, at.resource, u, live, true, true)
	switch {
	case apierrors.IsConflict(err):
		return err
	case err != nil:
		return r.failed(ctx, at, err)
	case !same(live, after):
		return stale(at.ref)
	}
	return nil
}

// served returns the resource of an object's kind. The server serves a new kind some time after it has accepted the definition.
func (r *run) served(ctx context.Context, of ref, until time.Time) (schema.GroupVersionResource, error) {
	for {
		m, err := r.mapping(ctx, of, of.Version)
		if err != nil {
			return schema.GroupVersionResource{}, err
		}
		if m != nil {
			return m.Resource, nil
		}
		if !r.Now().Before(until) {
			return schema.GroupVersionResource{}, plugin.Errorf(fairlead.ReasonKindUnknown, "the cluster does not serve %s, although its definition is established", of.kind())
		}
		if err := retry.Sleep(ctx, r.Limits.Poll); err != nil {
			return schema.GroupVersionResource{}, fmt.Errorf("wait for the kind of %s: %w", of, err)
		}
		r.cluster.Reset(ctx)
	}
}

// past names what an apply did, for the log.
var past = map[changeset.Action]string{changeset.Create: "created", changeset.Update: "updated", changeset.Replace: "created again", changeset.Import: "taken over"}

// deleteForReplace deletes an object and waits until it is gone.
func (r *run) deleteForReplace(ctx context.Context, at action, live *unstructured.Unstructured) error {
	_, err := call(ctx, r, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, r.client(at.resource, at.ref.Namespace).Delete(ctx, at.ref.Name, *onlyIf(string(live.GetUID()), ""))
	})
	if err != nil && !apierrors.IsNotFound(err) {
		at.verb, at.did = "delete", "delete the object in order to create it again"
		return r.failed(ctx, at, err)
	}
	r.logf("%s: deleted, to be created again.", at.ref)
	return r.awaitGone(ctx, map[ref]types.UID{at.ref: live.GetUID()})
}

// quiet is the longest time without a line in the log while an apply waits.
const quiet = time.Minute

// awaitReady waits until the objects are ready. An object that cannot become ready any more ends the wait at once.
func (r *run) awaitReady(ctx context.Context, waiting []ref) error {
	began := r.Now()
	until := began.Add(r.Limits.Ready)
	logged, spoke := map[ref]string{}, began
	for len(waiting) > 0 {
		var left []ref
		var why []string
		for _, of := range waiting {
			u, _, err := r.find(ctx, of)
			if err != nil {
				return err
			}
			if u == nil {
				return plugin.Errorf(fairlead.ReasonNotReady, "%s does not exist any more, although this component wants it: plan again", r.Mask(of.String()))
			}
			result, err := status.Compute(u)
			if err != nil {
				return plugin.Errorf(fairlead.ReasonNotReady, "%s has a status that the runner cannot read", r.Mask(of.String()))
			}
			message := r.Mask(fairlead.Clip(result.Message, 300))
			switch result.Status {
			case status.CurrentStatus:
				continue
			case status.FailedStatus:
				return plugin.Errorf(fairlead.ReasonNotReady, "%s has failed: %s", r.Mask(of.String()), message)
			}
			left, why = append(left, of), append(why, r.Mask(of.String())+": "+message)
			if logged[of] != message {
				logged[of], spoke = message, r.Now()
				r.logf("Waiting for %s: %s", of, message)
			}
		}
		if len(left) > 0 && r.Now().Sub(spoke) >= quiet { // A job without output for long is taken for one that hangs.
			spoke = r.Now()
			r.logf("Still waiting for %d objects: %s", len(left), why[0])
		}
		if waiting = left; len(left) == 0 {
			break
		}
		if !r.Now().Before(until) {
			more := ""
			if len(why) > 5 {
				more = fmt.Sprintf(", and %d more", len(why)-5)
			}
			return plugin.Errorf(fairlead.ReasonNotReady, "not ready after %s: %s%s", r.Limits.Ready.Round(time.Second), strings.Join(why[:min(5, len(why))], "; "), more)
		}
		if err := retry.Sleep(ctx, r.Limits.Poll); err != nil {
			return fmt.Errorf("wait until objects are ready: %w", err)
		}
		if err := r.fence(ctx); err != nil {
			return err
		}
	}
	if len(logged) > 0 {
		r.logf("Ready after %s.", r.Now().Sub(began).Round(time.Second))
	}
	return nil
}
