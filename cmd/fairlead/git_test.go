package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"

	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/fairlead/fairlead/tools/gitserver"
)

// repositories serves the git repositories of a folder until the script ends: "repositories FOLDER [PASSWORD]". It sets
// REPOSITORIES to their URL.
func repositories(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 || len(args) > 2 {
		ts.Fatalf("usage: repositories FOLDER [PASSWORD]")
	}
	h, err := gitserver.Handler(ts.MkAbs(args[0]), strings.Join(args[1:], ""))
	ts.Check(err)
	srv := httptest.NewServer(h)
	ts.Defer(srv.Close)
	ts.Setenv("REPOSITORIES", srv.URL)
}

// commit commits all files of a folder, and makes it a repository if it is none: "commit FOLDER TAG...". It sets COMMIT to
// the commit.
func commit(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 {
		ts.Fatalf("usage: commit FOLDER TAG...")
	}
	r, err := gitserver.New(ts.MkAbs(args[0]))
	ts.Check(err)
	id, err := r.Commit(nil, args[1:]...)
	ts.Check(err)
	ts.Setenv("COMMIT", id)
}

// replace replaces a text in a file: "replace FILE OLD NEW".
func replace(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: replace FILE OLD NEW")
	}
	content := ts.ReadFile(args[0])
	if !strings.Contains(content, args[1]) {
		ts.Fatalf("%s does not contain %q", args[0], args[1])
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(strings.ReplaceAll(content, args[1], args[2])), 0o600))
}

// ociRegistry serves an OCI registry until the script ends: "ociregistry". It sets OCI to its host.
func ociRegistry(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) > 0 {
		ts.Fatalf("usage: ociregistry")
	}
	srv := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	ts.Defer(srv.Close)
	ts.Setenv("OCI", strings.TrimPrefix(srv.URL, "http://"))
}

// chart serves a repository with one chart, whose folder is below FOLDER, until the script ends: "chart FOLDER NAME VERSION".
// It sets CHARTS to the repository's URL.
func chart(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: chart FOLDER NAME VERSION")
	}
	var archive bytes.Buffer
	zip := gzip.NewWriter(&archive)
	w := tar.NewWriter(zip)
	ts.Check(w.AddFS(os.DirFS(ts.MkAbs(args[0]))))
	ts.Check(w.Close())
	ts.Check(zip.Close())
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/index.yaml" {
			fmt.Fprintf(w, "entries: {%s: [{version: %s, urls: [chart.tgz], digest: %x}]}\n", args[1], args[2], sha256.Sum256(archive.Bytes()))
			return
		}
		_, _ = w.Write(archive.Bytes())
	}))
	ts.Defer(srv.Close)
	ts.Setenv("CHARTS", srv.URL)
}

// modules serves a registry of modules until the script ends: "modules FOLDER". FOLDER/NAME/VERSION has the files of a version of
// the module acme/NAME/aws; a file named git has its source in place of them. It sets MODULES to the registry's host. While FOLDER has a file named off, each request fails.
func modules(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: modules FOLDER")
	}
	root := os.DirFS(ts.MkAbs(args[0]))
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := fs.Stat(root, "off"); err == nil {
			w.WriteHeader(http.StatusNotImplemented)
			return
		}
		if r.URL.Path == "/.well-known/terraform.json" {
			fmt.Fprint(w, `{"modules.v1": "/v1/"}`)
			return
		}
		at := strings.Split(strings.TrimPrefix(r.URL.Path, "/v1/acme/"), "/") // NAME/aws/versions, NAME/aws/VERSION/download
		switch {
		case len(at) == 4:
			where := "/v1/acme/" + at[0] + "/" + at[2] + ".tar.gz"
			if git, err := fs.ReadFile(root, at[0]+"/"+at[2]+"/git"); err == nil {
				where = strings.TrimSpace(string(git))
			}
			w.Header().Set("X-Terraform-Get", where)
		case strings.HasSuffix(r.URL.Path, ".tar.gz"):
			serveArchive(w, root, at[0]+"/"+strings.TrimSuffix(at[1], ".tar.gz"))
		default:
			versions, err := fs.ReadDir(root, at[0])
			if err != nil {
				http.NotFound(w, r)
				return
			}
			var list []string
			for _, v := range versions {
				list = append(list, fmt.Sprintf(`{"version": %q}`, v.Name()))
			}
			fmt.Fprintf(w, `{"modules": [{"versions": [%s]}]}`, strings.Join(list, ","))
		}
	}))
	ts.Defer(srv.Close)
	ts.Setenv("MODULES", strings.TrimPrefix(srv.URL, "http://"))
}

// serveArchive answers with a tar.gz of a folder.
func serveArchive(w http.ResponseWriter, root fs.FS, folder string) {
	files, err := fs.Sub(root, folder)
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	zip := gzip.NewWriter(w)
	archive := tar.NewWriter(zip)
	if err := errors.Join(archive.AddFS(files), archive.Close(), zip.Close()); err != nil {
		panic(http.ErrAbortHandler)
	}
}
