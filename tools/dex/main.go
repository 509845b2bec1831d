// Command dex is a real OpenID Connect server for tests: Dex, with its own login form, people with passwords, and one public
// client. It keeps everything in memory.
//
//	dex -ready FILE -user eva@example.com=secret -user adam@example.com=secret
//
// writes the issuer's URL to the file of -ready when it serves, and serves until it is killed.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/dexidp/dex/server"
	"github.com/dexidp/dex/storage"
	"github.com/dexidp/dex/storage/memory"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/crypto/bcrypt"
)

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "dex:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	var people []storage.Password
	flag.Func("user", "a person, as EMAIL=PASSWORD; can be repeated", func(text string) error {
		email, password, ok := strings.Cut(text, "=")
		if !ok {
			return fmt.Errorf("%q is not EMAIL=PASSWORD", text)
		}
		hash, err := bcrypt.GenerateFromPassword([]byte(password), 10) // Dex refuses less
		name, _, _ := strings.Cut(email, "@")
		people = append(people, storage.Password{Email: email, Hash: hash, Username: name, UserID: "id-of-" + name})
		return err
	})
	client := flag.String("client", "fairlead", "the identifier of the client")
	ready := flag.String("ready", "", "the file for the issuer's URL")
	flag.Parse()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	issuer := "http://" + ln.Addr().String() + "/dex"
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	kept := memory.New(log)
	if err := kept.CreateConnector(ctx, storage.Connector{ID: server.LocalConnector, Type: server.LocalConnector, Name: "Email"}); err != nil {
		return err
	}
	kept = storage.WithStaticPasswords(kept, people, log)
	kept = storage.WithStaticClients(kept, []storage.Client{{ID: *client, Name: "Fairlead", Public: true}})
	s, err := server.NewServer(ctx, server.Config{Issuer: issuer, Storage: kept, SupportedResponseTypes: []string{"code"}, IDTokensValidFor: time.Hour, Logger: log,
		PrometheusRegistry: prometheus.NewRegistry(), Now: time.Now})
	if err != nil {
		return err
	}
	if err := os.WriteFile(*ready, []byte(issuer), 0o644); err != nil { // the listener accepts connections already
		return err
	}
	return (&http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second}).Serve(ln)
}
