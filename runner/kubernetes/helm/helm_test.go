package helm_test

import (
	"strings"
	"testing"
)

func web(version, greeting string) files {
	return files{
		"values.yaml":             "greeting: " + greeting + "\n",
		"templates/config.yaml":   configMap("{{ .Release.Name }}-config", "greeting", "{{ .Values.greeting | quote }}"),
		"templates/password.yaml": "apiVersion: v1\nkind: Secret\nmetadata:\n  name: web-password\nstringData:\n  password: {{ randAlphaNum 12 | quote }}\n",
		"templates/NOTES.txt":     "The greeting is {{ .Values.greeting }}.\n",
	}
}

func TestReleaseIsInstalledUpgradedAndDestroyed(t *testing.T) {
	w := newWorld(t)
	one := chart(t, "1.0.0", web("1.0.0", "hello"))
	p := w.plan(one, nil)
	w.wantRows(p, "create Secret/NS/web-password", "create ConfigMap/NS/web-config")
	if p.Base != nil || p.NoOp {
		t.Errorf("base %+v, no-op %v", p.Base, p.NoOp)
	}
	got := w.apply(p)
	if got.Outputs["revision"] != 1 || got.Outputs["app_version"] != "app-1.0.0" || got.Outputs["namespace"] != w.ns || got.Outputs["release"] != "web" {
		t.Errorf("outputs %v", got.Outputs)
	}
	if w.configMap("web-config")["greeting"] != "hello" || !strings.Contains(w.log.String(), "The greeting is hello.") {
		t.Errorf("%v\n%s", w.configMap("web-config"), w.log)
	}
	w.settled(one, nil)

	p = w.plan(one, map[string]any{"greeting": "hi"})
	w.wantRows(p, "update Secret/NS/web-password /data/password", "update ConfigMap/NS/web-config /data/greeting")
	if p.Base == nil || p.Base.Revision != 1 || p.Base.Lineage == "" {
		t.Errorf("base %+v", p.Base)
	}
	w.apply(p)
	if w.configMap("web-config")["greeting"] != "hi" || w.history() != "1 superseded, 2 deployed" {
		t.Errorf("%v, %s", w.configMap("web-config"), w.history())
	}

	// Values that are no longer given are the chart's again, also in the record.
	w.deploy(one, nil)
	if w.configMap("web-config")["greeting"] != "hello" || len(w.record().Config) > 0 {
		t.Errorf("%v, values %v", w.configMap("web-config"), w.record().Config)
	}

	p = w.planDestroy()
	w.wantRows(p, "delete ConfigMap/NS/web-config", "delete Secret/NS/web-password", "delete release NS/web (the records of all revisions)")
	w.apply(p)
	if w.configMap("web-config") != nil || w.history() != "" {
		t.Errorf("%v, %s", w.configMap("web-config"), w.history())
	}
	if p := w.planDestroy(); !p.NoOp {
		t.Errorf("destroyed twice: %s", rows(p))
	}
}
