package local_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/pkg/local"
	"github.com/fairlead/fairlead/pkg/webhook"
)

// got is an event that the endpoint received.
type got struct {
	id      string
	Type    string `json:"type"`
	Subject string `json:"subject"`
}

// Events reach an endpoint on the same path as on AWS: changes of the table, a bus and
// a queue. Events from before a restart are delivered after it.
func TestEventsReachWebhooks(t *testing.T) {
	arrived := make(chan got, 100)
	endpoint := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		g := got{id: r.Header.Get(webhook.HeaderID)}
		err := json.NewDecoder(r.Body).Decode(&g)
		if r.Context().Err() != nil {
			return // the server stopped while it sent this event
		}
		if err != nil || r.Header.Get(webhook.HeaderSignature) == "" {
			t.Errorf("received %+v: %v", g, err)
		}
		arrived <- g
	}))
	t.Cleanup(endpoint.Close)
	data := t.TempDir()
	start := func() (*local.Server, *client.Client) {
		t.Helper()
		s, err := local.Start(t.Context(), local.Options{Data: data, Listen: "127.0.0.1:0", Version: "test", Endpoints: endpoint.Client().Transport})
		if err != nil {
			t.Fatal(err)
		}
		token, err := os.ReadFile(s.TokenFile())
		if err != nil {
			t.Fatal(err)
		}
		c, err := client.New(s.URL(), strings.TrimSpace(string(token)), client.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return s, c
	}
	next := func(what string) got {
		t.Helper()
		select {
		case g := <-arrived:
			return g
		case <-time.After(30 * time.Second):
			t.Fatalf("%s does not arrive", what)
			return got{}
		}
	}
	s, c := start()
	w, err := c.CreateWebhook(t.Context(), wire.CreateWebhookRequest{Name: "ops", URL: endpoint.URL, Events: []string{"fairlead.job.canceled"}})
	if err != nil || !strings.HasPrefix(w.Secret, "whsec_") {
		t.Fatalf("%+v, %v", w, err)
	}
	cancel := func() string {
		t.Helper()
		j, err := c.CheckRunner(t.Context(), "local")
		if err == nil {
			_, err = c.CancelJob(t.Context(), j.ID)
		}
		if err != nil {
			t.Fatal(err)
		}
		return j.ID
	}
	job := cancel()
	first := next("the event of a job")
	if first.Type != "fairlead.job.canceled" || first.Subject != job {
		t.Errorf("the endpoint received %+v", first)
	}
	job = cancel()
	stop(t, s) // the event may be at any point of its path
	s, c = start()
	defer func() { stop(t, s) }()
	if g := next("the event from before the restart"); g.Subject != job {
		t.Errorf("after the restart the endpoint received %+v", g)
	}
	var page wire.Page[wire.WebhookDelivery]
	for deadline := time.Now().Add(30 * time.Second); ; {
		if page, err = c.ListDeliveries(t.Context(), "ops", client.ListOptions{}); err != nil || time.Now().After(deadline) {
			t.Fatalf("%+v, %v", page, err)
		}
		if len(page.Items) == 2 && page.Items[0].State == "delivered" && page.Items[1].State == "delivered" {
			break
		}
		<-time.After(10 * time.Millisecond)
	}
	if _, err := c.RedeliverWebhook(t.Context(), "ops", first.id); err != nil {
		t.Fatal(err)
	}
	// The restart may have repeated the second event, at any time until now.
	g := next("the redelivered event")
	for g.Subject == job {
		g = next("the redelivered event")
	}
	if g != first {
		t.Errorf("redelivery of %+v: the endpoint received %+v", first, g)
	}
}
