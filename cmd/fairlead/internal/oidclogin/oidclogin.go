// Package oidclogin lets a person log in at an OpenID Connect issuer, and returns the ID token. The program on the person's
// machine is a public client: PKCE (RFC 7636) binds the answer of the issuer to this process. The control plane verifies the
// token; this package does not.
package oidclogin

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/fairlead/fairlead/pkg/fairlead"
)

// Issuer is where a person logs in, and how the issuer knows this program.
type Issuer struct {
	URL          string
	ClientID     string
	ClientSecret string // "": none
}

const (
	// patience is how long a person has to log in.
	patience = 10 * time.Minute
	// answerTime is the timeout of a request to the issuer.
	answerTime = 30 * time.Second
)

// discover reads the configuration of the issuer.
func (i Issuer) discover(ctx context.Context) (context.Context, oauth2.Config, error) {
	ctx = oidc.ClientContext(ctx, &http.Client{Timeout: answerTime})
	p, err := oidc.NewProvider(ctx, i.URL)
	if err != nil {
		return ctx, oauth2.Config{}, failed("cannot read the configuration of the issuer "+i.URL, err)
	}
	return ctx, oauth2.Config{ClientID: i.ClientID, ClientSecret: i.ClientSecret, Endpoint: p.Endpoint(), Scopes: []string{oidc.ScopeOpenID, "email", "profile"}}, nil
}

func failed(message string, err error) error {
	return &fairlead.Error{Kind: fairlead.KindUnavailable, Code: fairlead.CodeOIDCIssuerUnavailable, Message: message, Err: err}
}

// refused is the refusal of the issuer, with its own text.
func refused(reason, text string) error {
	if text != "" {
		reason += ": " + text
	}
	return &fairlead.Error{Kind: fairlead.KindUnauthenticated, Code: fairlead.CodeLoginRefused, Message: "the issuer refused the login: " + fairlead.Clip(reason, 500), Hint: "Log in again."}
}

// Browser lets a person log in with a browser on this machine (RFC 8252): open gets the URL to visit. The issuer sends the
// browser to a server on the loopback interface, which this function starts and ends. The ID token has the nonce.
func Browser(ctx context.Context, i Issuer, nonce string, open func(url string)) (idToken string, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	ctx, conf, err := i.discover(ctx)
	if err != nil {
		return "", err
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("listen for the answer of the browser: %w", err)
	}
	// Most issuers accept the host localhost at any port. Fewer accept 127.0.0.1, which RFC 8252 prefers.
	conf.RedirectURL = fmt.Sprintf("http://localhost:%d/callback", ln.Addr().(*net.TCPAddr).Port)
	state, verifier := rand.Text(), oauth2.GenerateVerifier()
	answers := make(chan answer, 1)
	server := &http.Server{Handler: receive(state, answers), ReadHeaderTimeout: answerTime, MaxHeaderBytes: 64 << 10}
	served := make(chan error, 1)
	go func() { served <- server.Serve(ln) }()
	defer func() {
		ending, done := context.WithTimeout(context.WithoutCancel(ctx), time.Second) // the browser gets its page
		defer done()
		if server.Shutdown(ending) != nil {
			_ = server.Close() // the browser keeps a connection open
		}
		<-served
	}()
	open(conf.AuthCodeURL(state, oidc.Nonce(nonce), oauth2.S256ChallengeOption(verifier)))
	var a answer
	select {
	case a = <-answers:
	case <-ctx.Done():
		return "", waited(ctx)
	}
	if a.code == "" {
		return "", refused(a.reason, a.text)
	}
	token, err := conf.Exchange(ctx, a.code, oauth2.VerifierOption(verifier))
	return idTokenOf(token, err)
}

// waited returns the error of a login that did not end.
func waited(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return refused(fmt.Sprintf("the login did not end within %s", patience), "")
	}
	return ctx.Err()
}

// answer is what the issuer sends through the browser: a code, or the reason of a refusal.
type answer struct{ code, reason, text string }

// receive returns the handler of the redirect URL. It passes the first request with the right state on. Another page that the
// person has open in the browser does not know the state.
func receive(state string, answers chan<- answer) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /callback", func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("Referrer-Policy", "no-referrer") // the URL has the code
		if subtle.ConstantTimeCompare([]byte(q.Get("state")), []byte(state)) != 1 {
			http.Error(w, "This is not the answer to the login that waits.", http.StatusBadRequest)
			return
		}
		a := answer{code: q.Get("code"), reason: q.Get("error"), text: q.Get("error_description")}
		if a.code != "" {
			fmt.Fprintln(w, "Go back to the terminal. You can close this page.")
		} else {
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprintln(w, "The issuer refused the login. The terminal shows the reason.")
		}
		select {
		case answers <- a:
		default: // an answer was received before
		}
	})
	return mux
}

// Code is what a person needs to log in on another device.
type Code struct {
	URL      string // to visit
	Complete string // the URL with the code in it; "": the issuer has none
	Code     string // to type
}

// Device lets a person log in on any device (RFC 8628): show gets the URL and the code. It asks the issuer for the result as
// often as the issuer permits, until the code expires. The ID token has no nonce.
func Device(ctx context.Context, i Issuer, show func(Code)) (idToken string, err error) {
	ctx, conf, err := i.discover(ctx)
	if err != nil {
		return "", err
	}
	if conf.Endpoint.DeviceAuthURL == "" {
		return "", refused("it has no device flow", "")
	}
	verifier := oauth2.GenerateVerifier()
	code, err := conf.DeviceAuth(ctx, oauth2.S256ChallengeOption(verifier))
	if err != nil {
		return "", answered(err)
	}
	show(Code{URL: code.VerificationURI, Complete: code.VerificationURIComplete, Code: code.UserCode})
	token, err := conf.DeviceAccessToken(ctx, code, oauth2.VerifierOption(verifier))
	return idTokenOf(token, err)
}

// answered returns the error of a request to the issuer.
func answered(err error) error {
	if r, ok := errors.AsType[*oauth2.RetrieveError](err); ok && r.ErrorCode != "" {
		return refused(r.ErrorCode, r.ErrorDescription)
	}
	if errors.Is(err, context.Canceled) {
		return err
	}
	return failed("the issuer did not give a token", err)
}

func idTokenOf(t *oauth2.Token, err error) (string, error) {
	if err != nil {
		return "", answered(err)
	}
	if id, ok := t.Extra("id_token").(string); ok && id != "" {
		return id, nil
	}
	return "", refused("its answer has no ID token", "")
}
