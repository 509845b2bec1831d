package eks_test

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/fairlead/fairlead/pkg/identity/ststest"
	"github.com/fairlead/fairlead/runner/kubernetes/cluster"
	"github.com/fairlead/fairlead/runner/kubernetes/eks"
)

// server is an API server that authenticates as EKS does: it lets STS report whose signature the URL in the token has.
type server struct {
	*httptest.Server
	sts    *ststest.Server
	name   string
	tokens map[string]bool // that were accepted
}

func newEKS(t *testing.T, name string) *server {
	e := &server{sts: ststest.New(time.Now), name: name, tokens: map[string]bool{}}
	e.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		who, why := e.authenticate(token)
		if why != "" {
			http.Error(w, why, http.StatusUnauthorized)
			return
		}
		e.tokens[token] = true
		io.WriteString(w, who)
	}))
	t.Cleanup(e.Close)
	return e
}

// authenticate returns the ARN of the caller, or why the token is refused.
func (e *server) authenticate(token string) (arn, why string) {
	text, ok := strings.CutPrefix(token, "k8s-aws-v1.")
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if !ok || err != nil {
		return "", "this is no token of EKS"
	}
	u, err := url.Parse(string(raw))
	if err != nil || u.Scheme != "https" || u.Host != "sts.eu-central-1.amazonaws.com" || u.Query().Get("Action") != "GetCallerIdentity" {
		return "", "the token is no request to STS of the region: " + string(raw)
	}
	if q := u.Query(); q.Get("X-Amz-Expires") != "60" || !strings.Contains(q.Get("X-Amz-SignedHeaders"), "x-k8s-aws-id") {
		return "", "the token lives too long, or is not bound to a cluster: " + u.RawQuery
	}
	req := httptest.NewRequest(http.MethodGet, string(raw), http.NoBody)
	req.Header.Set("X-K8s-Aws-Id", e.name)
	req.Header.Set("Accept", "application/json")
	res := httptest.NewRecorder()
	e.sts.ServeHTTP(res, req)
	var answer struct {
		GetCallerIdentityResponse struct {
			GetCallerIdentityResult struct{ Arn string }
		}
	}
	if err := json.Unmarshal(res.Body.Bytes(), &answer); err != nil || res.Code != http.StatusOK {
		return "", "STS refuses the signature: " + res.Body.String()
	}
	return answer.GetCallerIdentityResponse.GetCallerIdentityResult.Arn, ""
}

// ca returns the certificate of the server, as EKS returns that of a cluster.
func (e *server) ca() string {
	return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: e.Certificate().Raw}))
}

// get sends a request with the settings of a connection.
func get(t *testing.T, cfg *rest.Config) (status int, body string) {
	t.Helper()
	c, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	res, err := c.Get(cfg.Host + "/version")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(b)
}

func TestJobProvesItsRoleToEKS(t *testing.T) {
	e := newEKS(t, "shop")
	creds := e.sts.AssumeRole("aws", "123456789012", "provision", "AROAXXXXXXXXXXXXXXXXX", "job")
	for name, value := range map[string]string{"AWS_ACCESS_KEY_ID": creds.AccessKeyID, "AWS_SECRET_ACCESS_KEY": creds.SecretAccessKey, "AWS_SESSION_TOKEN": creds.SessionToken,
		"AWS_CONFIG_FILE": "/dev/null", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null", "AWS_REGION": "eu-central-1"} {
		t.Setenv(name, value)
	}
	connect := func(name string) *rest.Config {
		tokens, err := eks.Tokens(t.Context(), name, "eu-central-1", time.Now)
		if err != nil {
			t.Fatal(err)
		}
		cfg, err := cluster.Config(cluster.Source{Endpoint: e.URL, CA: e.ca(), Tokens: tokens})
		if err != nil {
			t.Fatal(err)
		}
		return cfg
	}
	cfg := connect("shop")
	for range 2 {
		if status, body := get(t, cfg); status != http.StatusOK || body != "arn:aws:sts::123456789012:assumed-role/provision/job" {
			t.Errorf("the API server answers %d: %s", status, body)
		}
	}
	if len(e.tokens) != 1 {
		t.Errorf("two requests had %d tokens, want one that is kept", len(e.tokens))
	}
	if status, body := get(t, connect("other")); status != http.StatusUnauthorized || !strings.Contains(body, "STS refuses the signature") {
		t.Errorf("a token for another cluster is answered with %d: %s", status, body)
	}
}
