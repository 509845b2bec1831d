package cloudtest

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// googleLife is the lifetime of Google's tokens.
const googleLife = time.Hour

// Google simulates the parts of Google Cloud that a GKE cluster needs: a workload identity provider of type aws, a service
// account, and the cluster's description and API server. It authenticates as Google's documentation describes. The subject's
// token is a request to AWS's STS. Google checks the request and sends it.
type Google struct {
	*Front
	// The provider.
	Audience, Account, Role string // Audience is the provider's full name; Account is the AWS account; Role is its only accepted role
	// The service account.
	Email string
	// The cluster.
	Path   string // projects/…/locations/…/clusters/…
	User   string // the user that the cluster maps the service account to; "": none
	Status string // "": RUNNING
	// Private reports whether the cluster has only an address in its own network.
	Private bool
	// May has the permissions: Impersonate of the federated principals, and Describe of the service account.
	May struct{ Impersonate, Describe bool }

	aws Hosts
	now func() time.Time

	mu                   sync.Mutex
	guests, accounts     map[string]time.Time // federated tokens and the service account's tokens, with their expiry
	exchanged, described int
}

// NewGoogle returns a Google that finds AWS at the hosts aws.
func NewGoogle(t testing.TB, aws Hosts, now func() time.Time, api API) *Google {
	g := &Google{aws: aws, now: now, guests: map[string]time.Time{}, accounts: map[string]time.Time{}}
	g.May.Impersonate, g.May.Describe = true, true
	g.Front = newFront(t, api, g.whois)
	return g
}

// Hosts returns Google's hosts.
func (g *Google) Hosts() Hosts {
	return Hosts{"sts.googleapis.com": http.HandlerFunc(g.exchange), "iamcredentials.googleapis.com": http.HandlerFunc(g.impersonate),
		"container.googleapis.com": http.HandlerFunc(g.describe)}
}

// Requests returns the number of token exchanges and of cluster descriptions.
func (g *Google) Requests() (exchanged, described int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.exchanged, g.described
}

// exchange serves https://sts.googleapis.com/v1/token.
func (g *Google) exchange(w http.ResponseWriter, r *http.Request) {
	err := r.ParseForm()
	if err == nil && r.URL.Path != "/v1/token" {
		err = fmt.Errorf("no such path: %s", r.URL.Path)
	}
	for name, want := range map[string]string{
		"grant_type": "urn:ietf:params:oauth:grant-type:token-exchange", "requested_token_type": "urn:ietf:params:oauth:token-type:access_token",
		"subject_token_type": "urn:ietf:params:aws:token-type:aws4_request", "scope": "https://www.googleapis.com/auth/cloud-platform", "audience": g.Audience,
	} {
		if got := r.PostForm.Get(name); err == nil && got != want {
			err = fmt.Errorf("%s is %q", name, got)
		}
	}
	if err == nil {
		err = g.checkSubject(r.PostForm.Get("subject_token"))
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.exchanged++
	if err != nil {
		answer(w, http.StatusBadRequest, map[string]any{"error": "invalid_grant", "error_description": err.Error()})
		return
	}
	token := fresh()
	g.guests[token] = g.now().Add(googleLife)
	answer(w, http.StatusOK, map[string]any{"access_token": token, "issued_token_type": "urn:ietf:params:oauth:token-type:access_token", "token_type": "Bearer", "expires_in": int(googleLife / time.Second)})
}

// checkSubject returns nil if AWS confirms that the accepted role signed the subject's token.
func (g *Google) checkSubject(subject string) error {
	text, err := url.QueryUnescape(subject)
	if err != nil {
		return err
	}
	var signed struct {
		URL, Method string
		Headers     []struct{ Key, Value string }
	}
	if err := json.Unmarshal([]byte(text), &signed); err != nil {
		return fmt.Errorf("the subject's token is not a request: %w", err)
	}
	u, err := url.Parse(signed.URL)
	if err != nil {
		return err
	}
	q := u.Query()
	if signed.Method != http.MethodPost || u.Scheme != "https" || !regexp.MustCompile(`^sts\.[a-z0-9-]+\.amazonaws\.com$`).MatchString(u.Host) ||
		len(q) != 2 || q.Get("Action") != "GetCallerIdentity" || q.Get("Version") != "2011-06-15" {
		return fmt.Errorf("the subject's token is %s %s", signed.Method, signed.URL)
	}
	req, err := http.NewRequest(signed.Method, signed.URL, nil)
	if err != nil {
		return err
	}
	for _, h := range signed.Headers {
		if strings.EqualFold(h.Key, "host") {
			req.Host = h.Value
			continue
		}
		req.Header.Add(h.Key, h.Value)
	}
	_, names, _ := strings.Cut(req.Header.Get("Authorization"), "SignedHeaders=")
	names, _, _ = strings.Cut(names, ",")
	if req.Header.Get("x-goog-cloud-target-resource") != g.Audience || !slices.Contains(strings.Split(names, ";"), "x-goog-cloud-target-resource") || req.Host != u.Host {
		return fmt.Errorf("the subject's token is for %q, signed with %s", req.Header.Get("x-goog-cloud-target-resource"), names)
	}
	return g.checkCaller(req)
}

// checkCaller sends the request of the subject's token to AWS. It returns nil if AWS answers with the accepted role.
func (g *Google) checkCaller(req *http.Request) error {
	req.Header.Set("Accept", "application/json")
	resp, err := g.aws.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	var identity struct {
		GetCallerIdentityResponse struct {
			GetCallerIdentityResult struct{ Arn, Account string }
		}
	}
	if err := json.Unmarshal(body, &identity); resp.StatusCode != http.StatusOK || err != nil {
		return fmt.Errorf("AWS answered %d, %s", resp.StatusCode, body)
	}
	who := identity.GetCallerIdentityResponse.GetCallerIdentityResult
	if who.Account != g.Account || roleOf(who.Arn) != g.Role {
		return fmt.Errorf("%s is rejected by the attribute condition", who.Arn)
	}
	return nil
}

// impersonate serves https://iamcredentials.googleapis.com.
func (g *Google) impersonate(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Scope    []string
		Lifetime string
	}
	err := json.NewDecoder(r.Body).Decode(&in)
	g.mu.Lock()
	defer g.mu.Unlock()
	end, known := g.guests[bearerOf(r)]
	switch {
	case err != nil || r.Method != http.MethodPost || !slices.Equal(in.Scope, []string{"https://www.googleapis.com/auth/cloud-platform"}):
		refuse(w, http.StatusBadRequest, "unexpected request")
	case !known || !g.now().Before(end):
		refuse(w, http.StatusUnauthorized, "unknown or expired token")
	case r.URL.Path != "/v1/projects/-/serviceAccounts/"+g.Email+":generateAccessToken" || !g.May.Impersonate:
		refuse(w, http.StatusForbidden, "Permission 'iam.serviceAccounts.getAccessToken' denied on resource (or it may not exist).")
	default:
		token := fresh()
		g.accounts[token] = g.now().Add(googleLife)
		answer(w, http.StatusOK, map[string]any{"accessToken": token, "expireTime": g.accounts[token].UTC().Format(time.RFC3339)})
	}
}

// describe serves https://container.googleapis.com.
func (g *Google) describe(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.described++
	end, known := g.accounts[bearerOf(r)]
	switch {
	case !known || !g.now().Before(end):
		refuse(w, http.StatusUnauthorized, "unknown or expired token")
		return
	case !g.May.Describe:
		refuse(w, http.StatusForbidden, `Required "container.clusters.get" permission(s).`)
		return
	case r.Method != http.MethodGet || r.URL.Path != "/v1/"+g.Path:
		refuse(w, http.StatusNotFound, "Not found: "+r.URL.Path)
		return
	}
	status := g.Status
	if status == "" {
		status = "RUNNING"
	}
	address := strings.TrimPrefix(g.URL(), "https://")
	d := map[string]any{"status": status, "masterAuth": map[string]string{"clusterCaCertificate": base64.StdEncoding.EncodeToString(g.Authority())}}
	if g.Private {
		d["endpoint"], d["privateClusterConfig"] = "127.0.0.1:1", map[string]any{"privateEndpoint": address}
	} else {
		d["endpoint"] = address
	}
	answer(w, http.StatusOK, d)
}

// whois returns the user that the cluster maps the token's account to.
func (g *Google) whois(token string) (string, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	end, known := g.accounts[token]
	if !known || !g.now().Before(end) || g.User == "" {
		return "", fmt.Errorf("token known: %t, valid until %s; user %q", known, end, g.User)
	}
	return g.User, nil
}

func bearerOf(r *http.Request) string {
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	return token
}

func fresh() string { return "ya29." + rand.Text() }

func answer(w http.ResponseWriter, status int, what any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(what)
}

func refuse(w http.ResponseWriter, status int, message string) {
	answer(w, status, map[string]any{"error": map[string]any{"code": status, "message": message}})
}
