package dockerfile_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/runner/plugin/build/imagebuild/dockerfile"
)

// Each row is a Dockerfile and the images that BuildKit reads for it.
func TestBasesOfADockerfile(t *testing.T) {
	for name, tt := range map[string]struct {
		text, target string
		args         map[string]string
		want         string
	}{
		"one image":                       {text: "FROM r.example.com/a:1\n", want: "r.example.com/a:1"},
		"lower case, spaces and a digest": {text: "  from   r.example.com/a@sha256:00  as  x\n", want: "r.example.com/a@sha256:00"},
		"scratch is no image":             {text: "FROM scratch\n"},
		"an empty file":                   {text: ""},
		"an earlier stage is no image":    {text: "FROM a AS B\nFROM b\n", want: "a"},
		"a later stage is an image":       {text: "FROM b\nFROM a AS b\nFROM 0\nCOPY --from=0 / /\n", want: "0 b"},
		"only stages of the target":       {text: "FROM a AS x\nFROM b AS y\nFROM c\n", target: "Y", want: "b"},
		"a target by number":              {text: "FROM a\nFROM b\n", target: "0", want: "a"},
		"a target that is missing":        {text: "FROM a\n", target: "z"},
		"stages that a copy needs":        {text: "FROM a AS x\nFROM b AS y\nFROM c\nCOPY --chmod=0755 --from=x /p /p\n", want: "a c"},
		"an image that a copy names":      {text: "FROM a\nCOPY --from=r/tool:2 /p /p\nADD --from=no / /\n", want: "a r/tool:2"},
		"an image that a mount names":     {text: "FROM a\nRUN --mount=type=cache,target=/c --mount=from=r/tool,type=bind,target=/t make --mount=from=no\n", want: "a r/tool"},
		"arguments":                       {text: "ARG HOST=r.example.com TAG=1\nARG BASE=$HOST/a:${TAG}\nFROM ${BASE}\n", args: map[string]string{"TAG": "2", "UNDECLARED": "x"}, want: "r.example.com/a:2"},
		"arguments without a value":       {text: "ARG TAG\nFROM a${TAG:+-}$TAG:${TAG:-latest}${OTHER-3}\n", want: "a:latest3"},
		"an argument of a stage":          {text: "FROM a\nARG X=b\nFROM c$X\n", want: "c"},
		"quotes":                          {text: "ARG A=\"r/a\"\nFROM \"$A\"\n", want: "r/a"},
		"a continued line":                {text: "FROM \\\n# comment\n\n  r/a \\  \n  AS x\n", want: "r/a"},
		"another escape character":        {text: "# syntax=docker/dockerfile:1\n# escape=`\nFROM `\n r/a\nRUN dir c:\\\nFROM b\n", want: "b"},
		"a heredoc":                       {text: "FROM a\nRUN <<EOF cat\nFROM b\nEOF\nCOPY <<-\"X\" <<Y /d/\n\tFROM c\n\tX\nFROM d\nY\nFROM e\n", want: "e"},
		"a heredoc that is a quoted text": {text: "FROM a\nRUN echo \" <<EOF \"\nCOPY --from=b / /\n", want: "a b"},
		"a comment is no instruction":     {text: "#FROM x\nFROM a\n  # COPY --from=b / /\n", want: "a"},
		"windows line ends":               {text: "\ufeffFROM \\\r\n a\r\n", want: "a"},
		"names by platform":               {text: "FROM a-$TARGETARCH\nCOPY --from=b / /\n", want: "a-amd64 a-arm64 b"},
		"a name that cannot be read":      {text: "FROM ${A#x}\nCOPY --from=b / /\n", want: "b 1:${A#x}"},
	} {
		t.Run(name, func(t *testing.T) {
			bases, unread := dockerfile.Bases(tt.text, dockerfile.Options{Target: tt.target, Args: tt.args, Targets: []string{"linux/amd64", "linux/arm64"}, Machines: []string{"linux/amd64"}})
			var got []string
			for _, b := range bases {
				got = append(got, b.Name)
			}
			for _, u := range unread {
				got = append(got, fmt.Sprintf("%d:%s", u.Line, u.Text))
			}
			if text := strings.Join(got, " "); text != tt.want {
				t.Errorf("the images are %q, want %q", text, tt.want)
			}
		})
	}
}

// A stage on the machine's platform needs its image for this platform, and what it copies for both.
func TestPlatformsOfABase(t *testing.T) {
	bases, _ := dockerfile.Bases("FROM --platform=$BUILDPLATFORM a AS go\nCOPY --from=tool / /\nFROM b\nCOPY --from=go / /\nFROM --platform=linux/s390x c\nCOPY --from=1 / /\n",
		dockerfile.Options{Targets: []string{"linux/arm64", "linux/arm/v7"}, Machines: []string{"linux/amd64"}})
	want := "[{a [linux/amd64]} {b [linux/arm/v7 linux/arm64]} {c [linux/s390x]} {tool [linux/amd64 linux/arm/v7 linux/arm64]}]"
	if got := fmt.Sprint(bases); got != want {
		t.Errorf("the images are %s, want %s", got, want)
	}
}

func FuzzBases(f *testing.F) {
	f.Add("ARG A=b\nFROM ${A:-x} AS y\nRUN --mount=from=z <<E\nE\nCOPY --from=0 a b\n")
	f.Fuzz(func(t *testing.T, text string) {
		bases, _ := dockerfile.Bases(text, dockerfile.Options{Targets: []string{"linux/amd64"}, Machines: []string{"linux/arm64"}})
		for _, b := range bases {
			if b.Name == "" || b.Name == "scratch" || len(b.Platforms) == 0 {
				t.Errorf("an image is %+v", b)
			}
		}
	})
}
