package manifest_test

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const first = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 0
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: "example/web:1", ports: [{containerPort: 80}]}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {colour: blue, mode: "0644"}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: old}
data: {a: b}
`

func TestComponentIsCreatedUpdatedAndDestroyed(t *testing.T) {
	s := newSite(t)
	p := s.plan(first)
	s.wantRows(p, "create ConfigMap/NS/old", "create ConfigMap/NS/settings", "create Deployment/NS/web")
	if p.NoOp || p.Base != nil || p.Comparison != "server" {
		t.Errorf("the first plan is %+v", p)
	}
	if _, exists := s.inventory(); exists {
		t.Error("the plan has created an inventory")
	}
	s.apply(p)
	if !s.mutated {
		t.Error("the apply did not report that it changes the cluster")
	}
	if got := s.configMap("settings").Data; got["colour"] != "blue" || got["mode"] != "0644" {
		t.Errorf("the ConfigMap has %v", got)
	}
	inv, _ := s.inventory()
	if inv.names() != "ConfigMap/old ConfigMap/settings Deployment/web" || inv.Job != s.Attempt.Job {
		t.Errorf("the inventory is %+v", inv)
	}
	if again := s.plan(first); !again.NoOp || len(again.Changes) > 0 || again.Base == nil || again.Base.Revision != inv.Revision {
		t.Errorf("a plan without changes is %s, base %+v", rows(again), again.Base)
	}

	second := strings.NewReplacer("colour: blue", "colour: red", "web:1", "web:2").Replace(first[:strings.LastIndex(first, "---")])
	p = s.plan(second)
	s.wantRows(p, "update ConfigMap/NS/settings", "update Deployment/NS/web", "delete ConfigMap/NS/old")
	c := s.row(p, "ConfigMap/NS/settings")
	if c.Kind != "v1 ConfigMap" || strings.Join(c.Changed, " ") != "/data/colour" {
		t.Errorf("the change is %+v", c)
	}
	if c := s.row(p, "Deployment/NS/web"); strings.Join(c.Changed, " ") != "/spec/template/spec/containers/0/image" {
		t.Errorf("the change of the Deployment is of %v", c.Changed)
	}
	s.apply(p)
	if s.configMap("settings").Data["colour"] != "red" || s.exists(configMaps, s.ns, "old") {
		t.Error("the update is not in the cluster")
	}
	if inv, _ := s.inventory(); inv.names() != "ConfigMap/settings Deployment/web" {
		t.Errorf("the inventory after the update is %s", inv.names())
	}

	p = s.planDestroy()
	if got := strings.ReplaceAll(rows(p), s.ns, "NS"); !strings.HasPrefix(got, "delete Deployment/NS/web; delete ConfigMap/NS/settings; delete Secret/NS/fairlead-inventory-") {
		t.Errorf("the destroy has %s", got)
	}
	s.apply(p)
	if _, exists := s.inventory(); exists || s.exists(configMaps, s.ns, "settings") {
		t.Error("the destroy left objects")
	}
	if list, err := s.admin.AppsV1().Deployments(s.ns).List(t.Context(), metav1.ListOptions{}); err != nil || len(list.Items) > 0 {
		t.Errorf("the destroy left %d Deployments, %v", len(list.Items), err)
	}
	if p := s.planDestroy(); !p.NoOp {
		t.Errorf("a second destroy has %s", rows(p))
	}
}
