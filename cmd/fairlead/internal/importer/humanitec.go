package importer

import (
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/pkg/runnerspec"
	"github.com/fairlead/fairlead/pkg/yamldoc"
)

// Humanitec reads the file of a runner of Humanitec's Platform Orchestrator,
// YAML or JSON, what its API answers, and the attributes of its Terraform
// resources. The settings are as for runnerspec.Parse.
func Humanitec(file string, src []byte, settings []string) Result {
	h := &humanitec{newImporter(file, settings)}
	read := yamldoc.Read
	if json.Valid(src) {
		read = yamldoc.ReadJSON
	}
	root, problems := read(src)
	for _, p := range problems {
		p.File = file
		h.problems = append(h.problems, p)
	}
	if len(h.problems) > 0 {
		return h.result()
	}
	record := h.drop("it is of Humanitec's record of the runner; Fairlead keeps its own")
	h.object(root, "", handlers{
		"id": h.name, "description": h.same("description"), runnerPart: h.runner, storagePart: h.storage,
		"org_id": record, "created_at": record, "updated_at": record,
	})
	h.bucketRegion()
	return h.result()
}

type humanitec struct{ *importer }

// kindsOfHumanitec are their types of runners and ours.
func kindsOfHumanitec() map[string]runnerspec.Kind {
	return map[string]runnerspec.Kind{
		"kubernetes": runnerspec.Kubernetes, "kubernetes-gke": runnerspec.GCPGKE, "kubernetes-eks": runnerspec.AWSEKS,
		"kubernetes-agent": runnerspec.Kubernetes, "serverless-ecs": runnerspec.AWSECS,
	}
}

// theirType returns the type that a part names, one of the known, or "".
func (h *humanitec) theirType(n yamldoc.Node, where string, known []string) (string, yamldoc.Place) {
	i := slices.IndexFunc(n.Fields, func(f yamldoc.Field) bool { return f.Key == "type" })
	if n.Shape != yamldoc.Map || i < 0 {
		h.problem(n.Place, "missing-field", where+` lacks the field "type"`, "The types are: "+strings.Join(known, ", ")+".")
		return "", n.Place
	}
	t := n.Fields[i].Value
	s, ok := t.Value.(string)
	if !ok || !slices.Contains(known, s) {
		h.problem(t.Place, "unknown-type", fmt.Sprintf("%s.type is none of Humanitec's", where), yamldoc.DidYouMean(s, "types", known))
		return "", t.Place
	}
	return s, t.Place
}

// withType adds the type that Terraform's form has in the name of the resource:
// what only one type has tells it.
func (h *humanitec) withType(n yamldoc.Node, where string) yamldoc.Node {
	field := func(path ...string) bool {
		at := n
		for _, name := range path {
			i := slices.IndexFunc(at.Fields, func(f yamldoc.Field) bool { return f.Key == name && !f.Value.IsNull() })
			if i < 0 {
				return false
			}
			at = at.Fields[i].Value
		}
		return true
	}
	if field("type") {
		return n
	}
	theirs := ""
	switch {
	case field("key"):
		theirs = "kubernetes-agent"
	case field("cluster", "cluster_data"):
		theirs = "kubernetes"
	case field("cluster", "project_id"):
		theirs = "kubernetes-gke"
	case field("cluster", "region"):
		theirs = "kubernetes-eks"
	case field("auth") && field("job", "subnets"):
		theirs = "serverless-ecs"
	default:
		return n
	}
	h.note(n.Place, Changed, where, runnerPart+".type", "Terraform's form has no type; these fields are those of "+theirs)
	n.Fields = append([]yamldoc.Field{{Place: n.Place, Key: "type", Value: text(n.Place, theirs)}}, n.Fields...)
	return n
}

func (h *humanitec) runner(n yamldoc.Node, where string) {
	n = h.withType(n, where)
	theirs, at := h.theirType(n, where, []string{"kubernetes", "kubernetes-agent", "kubernetes-eks", "kubernetes-gke", "serverless-ecs"})
	if theirs == "" {
		return
	}
	ours := kindsOfHumanitec()[theirs]
	fate := Changed
	if theirs == string(ours) {
		fate = Mapped
	}
	h.put(runnerPart+".type", text(at, string(ours)))
	h.note(at, fate, where+".type", runnerPart+".type", map[Fate]string{Changed: fmt.Sprintf("%s is %s here", theirs, ours)}[fate])
	fields := handlers{"type": func(yamldoc.Node, string) {}, "job": h.kubernetesJob}
	switch theirs {
	case "kubernetes":
		fields["cluster"] = h.cluster
	case "kubernetes-gke":
		fields["cluster"] = h.gke
	case "kubernetes-eks":
		fields["cluster"] = h.eks
	case "kubernetes-agent":
		fields["key"] = h.drop("the agent makes its key pair itself and makes it known with a token that is good once: fairlead runner enrol NAME")
	case "serverless-ecs":
		fields["auth"], fields["job"] = h.aws(runnerPart+".auth"), h.ecsJob
	}
	h.object(n, where, fields)
}

// secret moves a value that is secret. What Humanitec shows instead of one is
// not one.
func (h *humanitec) secret(to string) func(yamldoc.Node, string) {
	return func(n yamldoc.Node, where string) {
		if n.Value == "SECRET" {
			h.problem(n.Place, "masked-secret", where+" is what Humanitec shows instead of the secret",
				"Write the secret there, or remove "+clusterPart+" and install the agent in the cluster: it then needs none.")
			return
		}
		h.with(Mapped, to, "it is secret: keep the file where only you can read it")(n, where)
	}
}

func (h *humanitec) cluster(n yamldoc.Node, where string) {
	h.object(n, where, handlers{
		"cluster_data": func(n yamldoc.Node, where string) {
			h.object(n, where, handlers{
				"server": h.same(clusterPart + ".server"), "proxy_url": h.same(clusterPart + ".proxy_url"),
				"certificate_authority_data": h.same(clusterPart + ".certificate_authority_data"),
			})
		},
		"auth": func(n yamldoc.Node, where string) {
			h.object(n, where, handlers{
				"client_certificate_data": h.same(clusterPart + ".auth.client_certificate_data"),
				"client_key_data":         h.secret(clusterPart + ".auth.client_key_data"),
				"service_account_token":   h.secret(clusterPart + ".auth.service_account_token"),
			})
		},
	})
}

func (h *humanitec) gke(n yamldoc.Node, where string) {
	to := func(name string) func(yamldoc.Node, string) { return h.same(clusterPart + "." + name) }
	h.object(n, where, handlers{
		"name": to("name"), "project_id": to("project_id"), "location": to("location"), "proxy_url": to("proxy_url"), "internal_ip": to("internal_ip"),
		"auth": func(n yamldoc.Node, where string) {
			h.object(n, where, handlers{
				"gcp_audience": h.with(Changed, clusterPart+".auth.gcp_audience",
					"that provider trusts Humanitec; let it, or another one, trust the issuer of this control plane"),
				"gcp_service_account": to("auth.gcp_service_account"),
			})
		},
	})
}

func (h *humanitec) eks(n yamldoc.Node, where string) {
	h.object(n, where, handlers{
		"name": h.same(clusterPart + ".name"), "region": h.same(clusterPart + ".region"), "auth": h.aws(clusterPart + ".auth"),
	})
}

func (h *humanitec) aws(to string) func(yamldoc.Node, string) {
	return func(n yamldoc.Node, where string) {
		h.object(n, where, handlers{
			"role_arn":     h.with(Changed, to+".role_arn", "its trust policy names Humanitec; let it trust this control plane"),
			"session_name": h.same(to + ".session_name"), "sts_region": h.same(to + ".sts_region"),
		})
	}
}

// theirRunner reports whether the repository is one of the names that the
// image of Humanitec's runner has had.
func theirRunner(repository string) bool {
	return slices.Contains([]string{"canyon-runner", "humanitec-runner", "platform-orchestrator-runner"}, path.Base(repository))
}

func (h *humanitec) ecsJob(n yamldoc.Node, where string) {
	to := func(name string) func(yamldoc.Node, string) { return h.same(jobPart + "." + name) }
	h.object(n, where, handlers{
		"region": to("region"), "cluster": to("cluster"), "subnets": to("subnets"), "security_groups": to("security_groups"),
		"is_public_ip_enabled": h.same(jobPart + ".public_ip"), "execution_role_arn": to("execution_role_arn"), "task_role_arn": to("task_role_arn"),
		"image": h.image(jobPart+".image", "Humanitec", theirRunner), "environment": to("environment"), "secrets": to("secrets"),
	})
}

func (h *humanitec) kubernetesJob(n yamldoc.Node, where string) {
	h.object(n, where, handlers{
		"namespace": h.same(jobPart + ".namespace"), "service_account": h.same(jobPart + ".service_account"), "pod_template": h.podTemplate,
	})
}

func (h *humanitec) storage(n yamldoc.Node, where string) {
	of := map[string][]string{
		"kubernetes": {"namespace"}, "s3": {"bucket", "path_prefix"}, "gcs": {"bucket", "path_prefix"},
		"azurerm": {"storage_account_name", "container_name", "resource_group_name", "path_prefix"},
	}
	theirs, at := h.theirType(n, where, []string{"azurerm", "gcs", "kubernetes", "s3"})
	if theirs == "" {
		return
	}
	h.put(storagePart+".type", text(at, theirs))
	h.note(at, Changed, where+".type", storagePart+".type", "states are kept under other names here, so those that are there are not found: an install begins without one")
	fields := handlers{"type": func(yamldoc.Node, string) {}}
	for _, name := range of[theirs] {
		fields[name] = h.same(storagePart + "." + name)
	}
	if fields["path_prefix"] != nil {
		fields["path_prefix"] = h.prefix
	}
	// Terraform's form has the fields in a block of the type's name.
	inner := handlers{}
	for _, name := range of[theirs] {
		inner[name] = fields[name]
	}
	fields[theirs+"_configuration"] = func(n yamldoc.Node, where string) { h.object(n, where, inner) }
	for other := range of {
		if other != theirs { // known only to hold null, which no handler gets
			fields[other+"_configuration"] = func(n yamldoc.Node, where string) {
				h.problem(n.Place, "excluded", fmt.Sprintf("%s is not of a state storage of type %s", where, theirs), "Remove it.")
			}
		}
	}
	h.object(n, where, fields)
}

func (h *humanitec) prefix(n yamldoc.Node, where string) {
	s, _ := n.Value.(string)
	trimmed := strings.Trim(s, "/")
	switch {
	case s == "" || trimmed == s:
		h.same(storagePart+".path_prefix")(n, where)
	case trimmed == "":
		h.drop("a prefix has no slashes at its ends here, and nothing is left of it")(n, where)
	default:
		h.put(storagePart+".path_prefix", text(n.Place, trimmed))
		h.note(n.Place, Changed, where, storagePart+".path_prefix", "without the slashes at its ends")
	}
}

// bucketRegion finds the region of a bucket, which Humanitec does not ask for.
func (h *humanitec) bucketRegion() {
	const field = storagePart + ".region"
	if t, ok := h.get(storagePart + ".type"); !ok || t.Value != "s3" || h.given(field) {
		return
	}
	for _, from := range []string{jobPart + ".region", clusterPart + ".region"} {
		if n, ok := h.get(from); ok {
			h.put(field, n)
			h.note(n.Place, Changed, from, field, "the bucket is taken to be in the region of the jobs; --set "+field+"=… says otherwise")
			return
		}
	}
	if n, ok := h.get(storagePart); ok {
		h.problem(n.Place, "missing-field", "Humanitec does not say in which region a bucket is, and "+storagePart+" needs it", "Add --set "+field+"=REGION.")
	}
}
