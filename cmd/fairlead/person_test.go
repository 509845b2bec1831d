package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/net/html"

	"github.com/fairlead/fairlead/tools/program"
	"github.com/fairlead/fairlead/tools/testserver"
)

// dex returns the command that starts a real OpenID Connect server with people: "dex EMAIL=PASSWORD…". It sets ISSUER.
func dex(t *testing.T) func(*testscript.TestScript, bool, []string) {
	return func(ts *testscript.TestScript, neg bool, args []string) {
		if neg || len(args) == 0 {
			ts.Fatalf("usage: dex EMAIL=PASSWORD...")
		}
		ready := filepath.Join(t.TempDir(), "issuer")
		cmd := exec.Command(program.Other(t, "tools/dex", "github.com/fairlead/fairlead/tools/dex"), "-ready", ready)
		for _, user := range args {
			cmd.Args = append(cmd.Args, "-user", user)
		}
		var issuer []byte
		p, err := testserver.Start(cmd, time.Minute, func() (err error) { issuer, err = os.ReadFile(ready); return err })
		ts.Check(err)
		ts.Defer(func() { p.Stop(0) })
		ts.Setenv("ISSUER", string(issuer))
	}
}

// person returns the command of a person who visits the last URL in a file, and logs in there: "person FILE EMAIL PASSWORD". It
// waits until the file has a URL. The person has a browser with cookies, fills the forms that it gets, and sends each.
func person(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: person FILE EMAIL PASSWORD")
	}
	var found []string
	ts.Check(testserver.Await(patience, func() error {
		text, err := os.ReadFile(ts.MkAbs(args[0]))
		if found = regexp.MustCompile(`https?://\S+\n`).FindAllString(string(text), -1); err == nil && len(found) == 0 {
			err = fmt.Errorf("%s has no URL", args[0])
		}
		return err
	}))
	jar, err := cookiejar.New(nil)
	ts.Check(err)
	browser := &http.Client{Jar: jar, Timeout: time.Minute}
	res, err := browser.Get(strings.TrimSpace(found[len(found)-1]))
	for range 6 {
		ts.Check(err)
		page, err := io.ReadAll(res.Body)
		ts.Check(err)
		ts.Check(res.Body.Close())
		f, ok := formOf(string(page))
		if !ok {
			ts.Logf("the person sees %s: %d %s", res.Request.URL.Path, res.StatusCode, strings.Join(strings.Fields(textOf(string(page))), " "))
			return
		}
		for name, value := range map[string]string{"login": args[1], "password": args[2]} {
			if f.values.Has(name) {
				f.values.Set(name, value)
			}
		}
		to, err := res.Request.URL.Parse(f.action)
		ts.Check(err)
		res, err = browser.PostForm(to.String(), f.values)
		ts.Check(err)
	}
	ts.Fatalf("the person gets one form after another, at last at %s", res.Request.URL)
}

type webForm struct {
	action string
	values url.Values
}

// formOf returns the first form of a page. A person who may choose gives access: the first form of Dex is that button.
func formOf(page string) (f webForm, ok bool) {
	f.values = url.Values{}
	for n := range nodes(page) {
		attr := map[string]string{}
		for _, a := range n.Attr {
			attr[a.Key] = a.Val
		}
		switch {
		case n.Data == "form" && ok:
			return f, true
		case n.Data == "form":
			f.action, ok = attr["action"], true
		case n.Data == "input" && ok && attr["name"] != "":
			f.values.Set(attr["name"], attr["value"])
		}
	}
	return f, ok
}

func textOf(page string) string {
	var out strings.Builder
	for n := range nodes(page) {
		if n.Type == html.TextNode {
			out.WriteString(n.Data + " ")
		}
	}
	return out.String()
}

func nodes(page string) func(yield func(*html.Node) bool) {
	return func(yield func(*html.Node) bool) {
		root, err := html.Parse(strings.NewReader(page))
		if err != nil {
			return
		}
		for n := range root.Descendants() {
			if !yield(n) {
				return
			}
		}
	}
}
