package cloudtest

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// azureLife is the lifetime of Entra's tokens.
const azureLife = time.Hour

// WebIdentity is a handler in front of an STS. It adds GetWebIdentityToken, which gives the signer of the request a token
// of the signer's identity. Parties that trust the issuer accept the token.
type WebIdentity struct {
	STS    http.Handler
	ARN    func(accessKey string) (arn string, ok bool)
	Sign   func(audience string, claims map[string]any) string
	Refuse string // error code; "": no error
}

// ServeHTTP answers GetWebIdentityToken, and forwards other requests to the STS.
func (i *WebIdentity) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	form, _ := url.ParseQuery(string(body))
	if form.Get("Action") != "GetWebIdentityToken" {
		i.STS.ServeHTTP(w, r)
		return
	}
	checked := httptest.NewRecorder() // the STS checks the signature
	i.STS.ServeHTTP(checked, r)
	_, key, _ := strings.Cut(r.Header.Get("Authorization"), "Credential=")
	key, _, _ = strings.Cut(key, "/")
	arn, known := i.ARN(key)
	w.Header().Set("Content-Type", "text/xml")
	code := i.Refuse
	switch {
	case checked.Code != http.StatusOK || !known:
		code = "InvalidClientTokenId"
	case form.Get("SigningAlgorithm") != "RS256" || form.Get("Audience.member.1") == "":
		code = "ValidationError"
	}
	if code != "" {
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprintf(w, `<ErrorResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><Error><Code>%s</Code><Message>refused</Message></Error></ErrorResponse>`, code)
		return
	}
	token := i.Sign(form.Get("Audience.member.1"), map[string]any{"sub": roleOf(arn)})
	fmt.Fprintf(w, `<GetWebIdentityTokenResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><GetWebIdentityTokenResult><WebIdentityToken>%s</WebIdentityToken><Expiration>%s</Expiration></GetWebIdentityTokenResult></GetWebIdentityTokenResponse>`,
		token, time.Now().Add(5*time.Minute).UTC().Format(time.RFC3339))
}

// Azure simulates Microsoft Entra with one application, and Azure with one AKS cluster and its API server.
type Azure struct {
	*Front
	// The names of the application and of its federated credential.
	Tenant, Client, Issuer, Subject string
	// The cluster.
	Path         string // subscriptions/…/resourceGroups/…/managedClusters/…
	User         string // the user that the cluster maps the application to; "": none
	DenyDescribe bool   // the application lacks the permission to get the cluster's address

	aws Hosts
	now func() time.Time

	mu                   sync.Mutex
	tokens               map[string]azureToken
	exchanged, described int
}

type azureToken struct {
	scope string
	end   time.Time
}

// NewAzure returns an Azure that reads the keys of AWS's issuer from the hosts aws.
func NewAzure(t testing.TB, aws Hosts, now func() time.Time, api API) *Azure {
	a := &Azure{aws: aws, now: now, tokens: map[string]azureToken{}}
	a.Front = newFront(t, api, a.whois)
	return a
}

// Hosts returns Azure's hosts.
func (a *Azure) Hosts() Hosts {
	return Hosts{"login.microsoftonline.com": http.HandlerFunc(a.login), "management.azure.com": http.HandlerFunc(a.describe)}
}

// Requests returns the number of token requests to Entra and of cluster descriptions.
func (a *Azure) Requests() (exchanged, described int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.exchanged, a.described
}

// login serves https://login.microsoftonline.com.
func (a *Azure) login(w http.ResponseWriter, r *http.Request) {
	err := r.ParseForm()
	switch {
	case err != nil || r.URL.Path != "/"+a.Tenant+"/oauth2/v2.0/token":
		err = fmt.Errorf("AADSTS90002: Tenant not found: %s", r.URL.Path)
	case r.PostForm.Get("grant_type") != "client_credentials" || r.PostForm.Get("client_assertion_type") != "urn:ietf:params:oauth:client-assertion-type:jwt-bearer" || r.PostForm.Has("client_secret"):
		err = fmt.Errorf("AADSTS900144: the request is not a client assertion")
	case r.PostForm.Get("client_id") != a.Client:
		err = fmt.Errorf("AADSTS700016: Application with identifier '%s' was not found", r.PostForm.Get("client_id"))
	default:
		err = a.checkAssertion(r.PostForm.Get("client_assertion"))
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.exchanged++
	if err != nil {
		answer(w, http.StatusUnauthorized, map[string]any{"error": "invalid_client", "error_description": err.Error()})
		return
	}
	token := fresh()
	a.tokens[token] = azureToken{r.PostForm.Get("scope"), a.now().Add(azureLife)}
	answer(w, http.StatusOK, map[string]any{"token_type": "Bearer", "expires_in": int(azureLife / time.Second), "access_token": token})
}

// checkAssertion returns nil if the assertion is valid: signed with the published keys of the trusted issuer, for the trusted
// subject.
func (a *Azure) checkAssertion(assertion string) error {
	tok, err := jwt.ParseSigned(assertion, []jose.SignatureAlgorithm{jose.RS256})
	if err != nil {
		return fmt.Errorf("AADSTS50027: %w", err)
	}
	var published struct {
		KeysAt string `json:"jwks_uri"`
	}
	var keys jose.JSONWebKeySet
	if err := a.fetch(a.Issuer+"/.well-known/openid-configuration", &published); err != nil {
		return err
	}
	if err := a.fetch(published.KeysAt, &keys); err != nil {
		return err
	}
	var claims jwt.Claims
	if err := tok.Claims(keys, &claims); err != nil {
		return fmt.Errorf("AADSTS5002736: the signature is not the issuer's: %w", err)
	}
	if err := claims.Validate(jwt.Expected{Issuer: a.Issuer, Subject: a.Subject, AnyAudience: jwt.Audience{"api://AzureADTokenExchange"}, Time: time.Now()}); err != nil {
		return fmt.Errorf("AADSTS700213: No matching federated identity record found for presented assertion: %w", err)
	}
	return nil
}

func (a *Azure) fetch(at string, out any) error {
	req, err := http.NewRequest(http.MethodGet, at, nil)
	if err != nil {
		return err
	}
	resp, err := a.aws.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return json.NewDecoder(resp.Body).Decode(out)
}

// valid reports whether the token is valid for the scope.
func (a *Azure) valid(token, scope string) bool {
	t, ok := a.tokens[token]
	return ok && t.scope == scope && a.now().Before(t.end)
}

// describe serves https://management.azure.com.
func (a *Azure) describe(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.described++
	deny := func(status int, code string) {
		answer(w, status, map[string]any{"error": map[string]any{"code": code, "message": "refused"}})
	}
	switch {
	case !a.valid(bearerOf(r), "https://management.azure.com/.default"):
		deny(http.StatusUnauthorized, "InvalidAuthenticationToken")
		return
	case a.DenyDescribe:
		deny(http.StatusForbidden, "AuthorizationFailed")
		return
	case r.Method != http.MethodPost || r.URL.Query().Get("api-version") == "" || r.URL.Path != "/"+a.Path+"/listClusterUserCredential":
		deny(http.StatusNotFound, "ResourceNotFound")
		return
	}
	// The kubeconfig of a cluster with Entra names a program that a client would run.
	kubeconfig := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: %q, certificate-authority-data: %s}}]
users: [{name: u, user: {exec: {apiVersion: client.authentication.k8s.io/v1beta1, command: /bin/false}}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
`, a.URL(), base64.StdEncoding.EncodeToString(a.Authority()))
	answer(w, http.StatusOK, map[string]any{"kubeconfigs": []any{map[string]any{"name": "clusterUser", "value": []byte(kubeconfig)}}})
}

// whois returns the user that the cluster maps the token's application to.
func (a *Azure) whois(token string) (string, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.valid(token, "6dae42f8-4368-4678-94ff-3960e28e3630/.default") || a.User == "" {
		return "", fmt.Errorf("the token is not for clusters, or has expired; the user is %q", a.User)
	}
	return a.User, nil
}
