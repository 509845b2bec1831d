package execution

import (
	"fmt"
	"slices"

	"github.com/fairlead/fairlead/pkg/appspec"
	"github.com/fairlead/fairlead/pkg/control/internal/catalog"
	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
	"github.com/fairlead/fairlead/pkg/deployment"
	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/pkg/graph"
	"github.com/fairlead/fairlead/pkg/job"
	"github.com/fairlead/fairlead/pkg/store"
)

// fillNodes computes the deployment's graph: all nodes, or those of its targets and of what these need.
func fillNodes(tx *kernel.Tx, inst store.Install, d *deployment.Deployment, version fairlead.VersionID) error {
	if d.Kind == deployment.Action {
		return runNode(tx, inst, d)
	}
	if err := allNodes(tx, inst, d, version); err != nil {
		return err
	}
	nodes, missing := deployment.Targeted(d.Nodes, d.Targets)
	if missing != "" {
		return &fairlead.Error{Kind: fairlead.KindNotFound, Code: fairlead.CodeComponentNotFound,
			Message: fmt.Sprintf("the deployment of install %s has no component %q", inst.Name, missing),
			Hint:    "{install.show} lists the components.",
			Args:    fairlead.Args{Install: inst.Name}}
	}
	d.Nodes = nodes
	return nil
}

// allNodes computes the graph without regard to targets. For a deploy it contains every component of the version that is not
// switched off, and after those the components that the version no longer has, or that are switched off. For a teardown it contains every component that is not known to be
// absent, in reverse order.
func allNodes(tx *kernel.Tx, inst store.Install, d *deployment.Deployment, version fairlead.VersionID) error {
	app, err := catalog.ReadApp(tx, inst.Org, inst.App)
	if err != nil {
		return err
	}
	v := app.Newest
	if version != "" && version != v.ID {
		if v, err = catalog.FindVersion(tx, inst.Org, inst.App, string(version)); err != nil {
			return err
		}
	}
	d.Version = v.ID
	comps, err := tx.Components(inst.ID)
	if err != nil {
		return err
	}
	left, records := map[string]store.Component{}, map[string]store.Component{}
	for _, k := range comps {
		records[k.V.Name] = k.V
		if k.V.State != store.Absent {
			left[k.V.Name] = k.V
		}
	}
	defer func() {
		for i := range d.Nodes {
			n := &d.Nodes[i]
			was, known := records[n.Component]
			if !known {
				was.Restored = inst.Restored
			}
			if n.Run == nil {
				n.Lost, n.LostJob, n.Restored = was.Doubtful(), was.Lost, !was.Restored.IsZero()
			}
		}
	}()
	if d.Kind == deployment.Teardown {
		if d.Nodes, err = removals(left); err != nil {
			return err
		}
		return teardownHooks(tx, inst, d, records)
	}
	inputs, err := catalog.CheckInputs(tx, inst, v.Spec)
	if err != nil {
		return err
	}
	off := v.Spec.Off(func(input string) any { return inputs[input].Value })
	waves, err := graph.Order(v.Spec.Graph())
	if err != nil {
		return err
	}
	var names []string
	for _, wave := range waves {
		for _, name := range wave {
			if off[name] {
				continue // if it exists, it is among those left, which are destroyed
			}
			k, _ := v.Spec.Component(name)
			if was, there := left[name]; there && was.TypeOf().Name != k.Type {
				return typeChanged(inst, was, k.Type, v.ID)
			} else if err := keptInSandbox(inst, was, v); err != nil {
				return err
			}
			d.Nodes = append(d.Nodes, deployment.Node{Component: name, Type: k.Type, Size: sizeOf(k), OwnImage: k.HasImage(), Role: k.Role, Needs: without(k.DependsOn, off), State: deployment.Pending})
			names = append(names, name)
			delete(left, name)
		}
	}
	gone, err := removals(left)
	if err != nil {
		return err
	}
	for _, n := range gone {
		// The components of the new version may use a dropped component until they are applied.
		n.Needs = append(slices.Clone(names), n.Needs...)
		d.Nodes = append(d.Nodes, n)
	}
	d.Nodes = withHooks(d.Nodes, v)
	afterHooksInSandbox(d.Nodes, records, v)
	return nil
}

// typeChanged returns the error for a version in which an existing component has another type. Only the type that
// created a component can destroy it.
func typeChanged(inst store.Install, was store.Component, to string, v fairlead.VersionID) error {
	return &fairlead.Error{Kind: fairlead.KindInvalid, Code: fairlead.CodeComponentTypeChanged,
		Message: fmt.Sprintf("component %s of install %s has the type %s, but version %s declares it with the type %s", was.Name, inst.Name, was.TypeOf().Name, v, to),
		Hint:    "Give the new component another name: then the old one is destroyed with its old type.",
		Details: map[string]string{"component": was.Name}}
}

// removals orders components for their removal: a component is destroyed after the components that depend on it.
func removals(left map[string]store.Component) ([]deployment.Node, error) {
	var nodes []graph.Node
	for name, k := range left {
		var needs []string
		for _, n := range k.DependsOn {
			if _, ok := left[n]; ok {
				needs = append(needs, n)
			}
		}
		nodes = append(nodes, graph.Node{Name: name, Needs: needs})
	}
	reversed := graph.Reverse(acyclic(nodes, left))
	waves, err := graph.Order(reversed)
	if err != nil {
		return nil, err
	}
	needs := map[string][]string{}
	for _, n := range reversed {
		needs[n.Name] = n.Needs
	}
	var out []deployment.Node
	for _, wave := range waves {
		for _, name := range wave {
			out = append(out, deployment.Node{Component: name, Type: left[name].Type, Size: left[name].Size, OwnImage: left[name].OwnImage, Destroy: true, Needs: needs[name], State: deployment.Pending})
		}
	}
	return out, nil
}

// sizeOf returns the size that a component asks for its jobs.
func sizeOf(k appspec.Component) job.Size {
	return job.Size{CPU: int64(k.Job.CPU), Memory: int64(k.Job.Memory)}
}

// acyclic removes needs until the graph has no cycle. No version has a cycle, so the records on a cycle are of
// several versions, and at least one of them is outdated. acyclic removes the need that was recorded first, because
// later records are more accurate. If that choice is wrong, the destroy of a component that is still used fails and
// can be retried. If the whole teardown were refused instead, a person could not remove any component.
func acyclic(nodes []graph.Node, of map[string]store.Component) []graph.Node {
	for {
		cycle := graph.Cycle(nodes)
		if cycle == nil {
			return nodes
		}
		from := 0
		for i := range cycle[:len(cycle)-1] {
			if of[cycle[i]].Updated.Before(of[cycle[from]].Updated) {
				from = i
			}
		}
		for i := range nodes {
			if nodes[i].Name == cycle[from] {
				nodes[i].Needs = slices.DeleteFunc(nodes[i].Needs, func(need string) bool { return need == cycle[from+1] })
			}
		}
	}
}

// without returns the names that are not in off.
func without(names []string, off map[string]bool) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return off[name] })
}
