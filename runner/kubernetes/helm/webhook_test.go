package helm_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/pkg/fairlead"
)

// admission is a webhook that the API server asks before each change of a ConfigMap in a namespace. Safe for concurrent use.
type admission struct {
	mu       sync.Mutex
	dry, all int // requests
}

func (a *admission) counts() (dry, all int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.dry, a.all
}

// webhook starts a webhook that declares that it has no side effects, and refuses ConfigMaps with a name that begins with "refused".
func (w *world) webhook(code int32) *admission {
	w.Helper()
	a := &admission{}
	server := httptest.NewTLSServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(rw, err.Error(), http.StatusBadRequest)
			return
		}
		if !strings.HasPrefix(review.Request.Name, "refused-probe") {
			a.mu.Lock()
			a.all++
			if review.Request.DryRun != nil && *review.Request.DryRun {
				a.dry++
			}
			a.mu.Unlock()
		}
		allowed := !strings.HasPrefix(review.Request.Name, "refused")
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: allowed}
		if !allowed {
			review.Response.Result = &metav1.Status{Message: "this name is not permitted", Code: code}
		}
		review.Request = nil
		json.NewEncoder(rw).Encode(review)
	}))
	w.Cleanup(server.Close)
	none, fail, url := admissionregistrationv1.SideEffectClassNone, admissionregistrationv1.Fail, server.URL
	name := w.ns + ".example.com"
	configurations := w.client.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	_, err := configurations.Create(w.Context(), &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: name, SideEffects: &none, FailurePolicy: &fail, AdmissionReviewVersions: []string{"v1"},
			ClientConfig:      admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})},
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": w.ns}},
			Rules: []admissionregistrationv1.RuleWithOperations{{Operations: []admissionregistrationv1.OperationType{"CREATE", "UPDATE"},
				Rule: admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}}}},
		}}}, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { configurations.Delete(context.WithoutCancel(w.Context()), name, metav1.DeleteOptions{}) })
	w.until("the API server asks the webhook", func() bool {
		_, err := w.client.CoreV1().ConfigMaps(w.ns).Create(w.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "refused-probe"}}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err != nil
	})
	return a
}

// A webhook sees dry runs only until the apply. An object that it refuses is refused by the plan, with the webhook's message, and not at
// the apply.
func TestWebhookIsAskedByThePlan(t *testing.T) {
	w := newWorld(t)
	a := w.webhook(0)
	good := chart(t, "1.0.0", files{"templates/a.yaml": configMap("a", "k", "v")})
	p := w.plan(good, nil)
	w.wantRows(p, "create ConfigMap/NS/a")
	if dry, all := a.counts(); dry == 0 || dry != all {
		t.Errorf("the plan asked the webhook %d times, %d of them in dry runs", all, dry)
	}
	w.apply(p)
	if dry, all := a.counts(); dry == all {
		t.Errorf("the apply did not ask the webhook: %d requests, all in dry runs", all)
	}
}

func TestRefusalOfAWebhookHasAReason(t *testing.T) {
	for name, code := range map[string]int32{"without a status": 0, "with the status of a missing permission": http.StatusForbidden} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.webhook(code)
			_, err := w.engine().Plan(t.Context(), chart(t, "1.0.0", files{"templates/a.yaml": configMap("refused")}), nil, false)
			if msg := w.refused(err, fairlead.ReasonAdmissionRefused); !strings.Contains(msg, "this name is not permitted") || !strings.Contains(msg, "templates/a.yaml") {
				t.Error(msg)
			}
		})
	}
}
