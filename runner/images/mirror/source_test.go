package mirror_test

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/fairlead/fairlead/pkg/fairlead"
	"github.com/fairlead/fairlead/runner/images/mirror"
	"github.com/fairlead/fairlead/runner/plugin"
)

func TestFileOfAComponentIsRead(t *testing.T) {
	vars := map[string]json.RawMessage{"tag": json.RawMessage(`"1.2"`), "major": json.RawMessage("1")}
	for text, want := range map[string]string{
		"image: nginx":                                     "docker.io/library/nginx:latest",
		"image: docker.io/library/nginx:1.27":              "docker.io/library/nginx:1.27",
		"image: ghcr.io/acme/web:${vars.tag}":              "ghcr.io/acme/web:1.2",
		"image: ghcr.io/acme/web-${vars.major}:x\nkeep: 0": "ghcr.io/acme/web-1:x",
		"image: localhost:5000/web@" + strings.Repeat("sha256:", 1) + strings.Repeat("a", 64): "localhost:5000/web@sha256:" + strings.Repeat("a", 64),
	} {
		src, err := mirror.Read(fstest.MapFS{mirror.File: {Data: []byte(text)}}, vars)
		if err != nil || src.Image.CommonName() != want {
			t.Errorf("%s: %s, %v; want %s", text, src.Image.CommonName(), err, want)
		}
	}
}

// A mistake is reported when the component is planned, with the line.
func TestMistakesOfTheFileAreReportedAtTheirLine(t *testing.T) {
	vars := map[string]json.RawMessage{"list": json.RawMessage("[]"), "none": json.RawMessage("null")}
	for text, want := range map[string]string{
		"":                                    "image.yaml:1:1",
		"- a":                                 "must be a map",
		"platforms: [linux/amd64]":            `the file lacks the field "image"`,
		"image: web\nplatform: [linux/amd64]": `image.yaml:2:1: the file has no field "platform"`,
		"image: web/UPPER":                    "no reference of an image",
		"image: ocidir://web":                 "no reference of an image",
		"image: web@sha512:" + strings.Repeat("a", 128): "not of SHA-256",
		"image: web:${vars.tag}":                        "${vars.tag} is no variable",
		"image: web:${vars.list}":                       "neither a text nor a number",
		"image: web:${vars.none}":                       "neither a text nor a number",
		"image: web\nplatforms: [linux]":                "image.yaml:2:13: platforms.1 must be a platform",
		"image: web\nkeep: -1":                          "image.yaml:2:7: keep must be from 0 to 100",
		"image: web\nverify: {keys: [none.pub]}":        "image.yaml:2:17",
		"image: web\nverify: {keys: [bad.pub]}":         "no public key in PEM",
		"image: web\nverify: {keys: [../x.pub]}":        "no path of a file",
		"image: web\nverify: {}":                        "keys",
	} {
		_, err := mirror.Read(fstest.MapFS{mirror.File: {Data: []byte(text)}, "bad.pub": {Data: []byte("no")}}, vars)
		if plugin.ReasonOf(err) != fairlead.ReasonArtifactInvalid || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %s", text, err, want)
		}
	}
	if _, err := mirror.Read(fstest.MapFS{}, nil); plugin.ReasonOf(err) != fairlead.ReasonArtifactInvalid {
		t.Errorf("without the file: %v", err)
	}
}

// A login is a pair, or a Docker configuration. The errors do not repeat it.
func TestLoginsAreRead(t *testing.T) {
	const file = `{"auths":{"https://index.docker.io/v1/":{"auth":"dTpodXNo"},"ghcr.io":{"username":"a","password":"b"},"r.example.com/v2/":{"auth":"dTpw"}}}`
	logins, err := mirror.ParseLogins("r", file)
	if err != nil || logins["docker.io"] != (mirror.Login{Username: "u", Password: "hush"}) || logins["ghcr.io"].Password != "b" || logins["r.example.com"].Password != "p" {
		t.Errorf("the logins are %v, %v", logins, err)
	}
	if logins, err := mirror.ParseLogins("r", " user:pass:phrase\n"); err != nil || logins["r"] != (mirror.Login{Username: "user", Password: "pass:phrase"}) {
		t.Errorf("the login is %v, %v", logins, err)
	}
	for _, text := range []string{"", "hush", ":hush", "hush:", "{hush", `{"auths":{}}`, `{"auths":{"r":{"auth":"hush"}}}`} {
		if _, err := mirror.ParseLogins("r", text); err == nil || strings.Contains(err.Error(), "hush") {
			t.Errorf("%q: %v", text, err)
		}
	}
}
