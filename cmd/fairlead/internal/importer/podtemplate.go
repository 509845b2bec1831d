package importer

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/pkg/runnerspec"
	"github.com/fairlead/fairlead/pkg/yamlnode"
)

const templatePart = jobPart + ".pod_template"

// podTemplate imports a pod template. It moves settings that have their own field in
// Fairlead out of the template, and gives the container of the job its name in Fairlead.
func (h *humanitec) podTemplate(n yamlnode.Node, where string) {
	if s, ok := n.Value.(string); ok {
		// In Terraform the template is a text that jsonencode returns.
		inner, problems := yamlnode.ReadJSON([]byte(s))
		if len(problems) > 0 {
			h.problem(n.Place, "invalid-value", where+" is a text but not JSON: "+problems[0].Message, "Write a map, or the text that jsonencode returns.")
			return
		}
		n = inner.Moved(n.Place)
	}
	if n.Shape != yamlnode.Map {
		h.problem(n.Place, "wrong-type", where+" must be a map, not "+n.Describe(), "")
		return
	}
	out := yamlnode.Node{Place: n.Place, Shape: yamlnode.Map}
	for _, f := range n.Fields {
		if f.Key == "spec" && f.Value.Shape == yamlnode.Map {
			if f.Value = h.podSpec(f.Value, where+".spec"); len(f.Value.Fields) == 0 {
				continue
			}
		} else {
			h.note(f.Place, Mapped, where+"."+f.Key, templatePart+"."+f.Key, "")
		}
		out.Fields = append(out.Fields, f)
	}
	if len(out.Fields) > 0 {
		h.put(templatePart, out)
	}
}

func (h *humanitec) podSpec(n yamlnode.Node, where string) yamlnode.Node {
	out := yamlnode.Node{Place: n.Place, Shape: yamlnode.Map}
	for _, f := range n.Fields {
		path := where + "." + f.Key
		switch f.Key {
		case "imagePullSecrets":
			if names, ok := secretNames(f.Value); ok {
				h.put(jobPart+".pull_secrets", names)
				h.note(f.Place, Mapped, path, jobPart+".pull_secrets", "")
				continue
			}
		case "containers":
			if f.Value.Shape == yamlnode.List {
				if f.Value = h.containers(f.Value, path); len(f.Value.Items) > 0 {
					out.Fields = append(out.Fields, f)
				}
				continue
			}
		}
		h.note(f.Place, Mapped, path, templatePart+".spec."+f.Key, "")
		out.Fields = append(out.Fields, f)
	}
	return out
}

// secretNames returns [a, b] for [{name: a}, {name: b}]. It returns false for any other
// form.
func secretNames(n yamlnode.Node) (yamlnode.Node, bool) {
	out := yamlnode.Node{Place: n.Place, Shape: yamlnode.List}
	for _, item := range n.Items {
		if len(item.Fields) != 1 || item.Fields[0].Key != "name" {
			return out, false
		}
		out.Items = append(out.Items, item.Fields[0].Value)
	}
	return out, len(out.Items) > 0
}

// containerNames returns the names of the job's container in Humanitec, current and
// former.
func containerNames() []string { return []string{"canyon-runner", "main", "runner"} }

func (h *humanitec) containers(n yamlnode.Node, where string) yamlnode.Node {
	out := yamlnode.Node{Place: n.Place, Shape: yamlnode.List}
	for i, c := range n.Items {
		path := fmt.Sprintf("%s[%d]", where, i)
		at, name := c.Place, ""
		for _, f := range c.Fields {
			if f.Key == "name" {
				at = f.Value.Place
				name, _ = f.Value.Value.(string)
			}
		}
		if !slices.Contains(containerNames(), name) {
			h.problem(at, "unknown-container", fmt.Sprintf("%s is called %s, which is not the container of Humanitec's runner", path, yamlnode.Quote(name)),
				strings.TrimSpace(yamlnode.DidYouMean(name, "names", containerNames())+" Add another container to initContainers, with restartPolicy: Always."))
			continue
		}
		if kept := h.container(c, path); len(kept.Fields) > 1 {
			out.Items = append(out.Items, kept)
		}
	}
	return out
}

// container imports the job's container. The result has the name first, then the
// settings that have no own field in Fairlead.
func (h *humanitec) container(c yamlnode.Node, where string) yamlnode.Node {
	out := yamlnode.Node{Place: c.Place, Shape: yamlnode.Map}
	out.Fields = append(out.Fields, yamlnode.Field{Place: c.Place, Key: "name", Value: text(c.Place, runnerspec.StepContainer)})
	for _, f := range c.Fields {
		path := where + "." + f.Key
		switch f.Key {
		case "name":
			h.note(f.Place, Changed, path, templatePart, "Fairlead calls the container of a job "+runnerspec.StepContainer)
		case "image":
			h.image(jobPart+".image", "Humanitec", theirRunner)(f.Value, path)
		case "imagePullPolicy":
			h.same(jobPart+".image_pull_policy")(f.Value, path)
		case "env":
			if f.Value = h.variables(f.Value, path); len(f.Value.Items) > 0 {
				out.Fields = append(out.Fields, f)
			}
		default:
			h.note(f.Place, Mapped, path, templatePart+".spec.containers[0]."+f.Key, "")
			out.Fields = append(out.Fields, f)
		}
	}
	return out
}

// variables imports environment variables. It drops RUNNER_GIT_SSH_KEYS, which only
// Humanitec's runner uses, to fetch modules.
func (h *humanitec) variables(n yamlnode.Node, where string) yamlnode.Node {
	out := n
	out.Items = nil
	for i, v := range n.Items {
		path := fmt.Sprintf("%s[%d]", where, i)
		if slices.ContainsFunc(v.Fields, func(f yamlnode.Field) bool { return f.Key == "name" && f.Value.Value == "RUNNER_GIT_SSH_KEYS" }) {
			h.note(v.Place, Dropped, path, "", "Fairlead's runner fetches no modules from git: the app contains them")
			continue
		}
		h.note(v.Place, Mapped, path, templatePart+".spec.containers[0].env", "")
		out.Items = append(out.Items, v)
	}
	return out
}
