package fairlead_test

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/pkg/fairlead"
)

func TestIdentifiersAreUniqueAndSortByTime(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	ids := fairlead.RandomIDs(func() time.Time { return now })
	form := regexp.MustCompile(`^job_[0-9a-hjkmnp-tv-z]{26}$`)
	var made []string
	for range 1000 {
		now = now.Add(time.Millisecond)
		id := ids(fairlead.PrefixJob)
		if !form.MatchString(id) {
			t.Fatalf("%q is not a prefix and a lower-case ULID", id)
		}
		made = append(made, id)
	}
	if !slices.IsSorted(made) {
		t.Error("identifiers do not sort by the time they were made")
	}
	seen := map[string]bool{}
	for range 1000 { // all of these identifiers are made in one millisecond
		id := ids(fairlead.PrefixDeployment)
		if seen[id] {
			t.Fatalf("%s was returned twice", id)
		}
		seen[id] = true
	}
}

func TestIDSourceIsSafeForConcurrentUse(t *testing.T) {
	ids := fairlead.RandomIDs(time.Now)
	made := make(chan string)
	for range 8 {
		go func() {
			for range 50 {
				made <- ids(fairlead.PrefixJob)
			}
		}()
	}
	seen := map[string]bool{}
	for range 8 * 50 {
		id := <-made
		if seen[id] {
			t.Errorf("%s was returned twice", id)
		}
		seen[id] = true
	}
}

func TestCheckName(t *testing.T) {
	for name, ok := range map[string]bool{
		"a": true, "web": true, "web-1": true, "a--b": true, "x9": true, strings.Repeat("a", fairlead.MaxName): true,
		"": false, "-web": false, "web-": false, "1web": false, "Web": false, "wéb": false, "web_1": false, "web.1": false,
		"web 1": false, "web\n": false, "\nweb": false, "../web": false, "web/1": false, "web\x00": false,
		strings.Repeat("a", fairlead.MaxName+1): false,
	} {
		err := fairlead.CheckName("install", name)
		if (err == nil) != ok {
			t.Errorf("CheckName(%q) returns %v, want valid: %t", name, err, ok)
		}
		if err != nil {
			e, is := errors.AsType[*fairlead.Error](err)
			if !is || e.Kind != fairlead.KindInvalid || e.Code != "invalid-name" || e.Hint == "" {
				t.Errorf("the refusal of %q is %#v", name, err)
			}
			if want := fmt.Sprintf("%q is not a valid install name", name); e.Message != want {
				t.Errorf("the message is %q, want %q", e.Message, want)
			}
		}
	}
}

func TestValidNameIsDNSLabel(t *testing.T) {
	label := regexp.MustCompile(`\A[a-z0-9-]{1,63}\z`)
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.OneOf(rapid.StringMatching(`[a-z0-9-]{0,70}`), rapid.String()).Draw(t, "name")
		if fairlead.CheckName("app", name) != nil {
			return
		}
		if !label.MatchString(name) || name[0] == '-' || name[len(name)-1] == '-' || name[0] <= '9' {
			t.Fatalf("%q is accepted as a name", name)
		}
	})
}

func TestKindIsThatOfTheOutermostError(t *testing.T) {
	conflict := fairlead.Conflict("install-busy", "install %s is busy", "acme")
	for name, c := range map[string]struct {
		err  error
		kind fairlead.Kind
		code fairlead.Code
	}{
		"no error":                            {nil, "", ""},
		"one of ours":                         {conflict, fairlead.KindConflict, "install-busy"},
		"wrapped":                             {fmt.Errorf("deploy: %w", conflict), fairlead.KindConflict, "install-busy"},
		"joined with others":                  {errors.Join(io.EOF, conflict), fairlead.KindConflict, "install-busy"},
		"ours around ours: the outer one":     {&fairlead.Error{Kind: fairlead.KindUnavailable, Code: "busy", Message: "later", Err: conflict}, fairlead.KindUnavailable, "busy"},
		"an error without a kind is internal": {io.ErrUnexpectedEOF, fairlead.KindInternal, ""},
		"invalid":                             {fairlead.Invalid("bad-input", "no"), fairlead.KindInvalid, "bad-input"},
		"not found":                           {fairlead.NotFound("install-not-found", "acme"), fairlead.KindNotFound, "install-not-found"},
	} {
		if kind, code := fairlead.KindOf(c.err), fairlead.CodeOf(c.err); kind != c.kind || code != c.code {
			t.Errorf("%s: the kind is %q with code %q, want %q with %q", name, kind, code, c.kind, c.code)
		}
	}
}

func TestErrorTextIncludesTheCause(t *testing.T) {
	e := &fairlead.Error{Kind: fairlead.KindUnavailable, Message: "the store does not answer", Err: io.ErrUnexpectedEOF}
	if e.Error() != "the store does not answer: unexpected EOF" || !errors.Is(e, io.ErrUnexpectedEOF) {
		t.Errorf("the text is %q", e)
	}
	if e.Err = nil; e.Error() != "the store does not answer" {
		t.Errorf("without a cause the text is %q", e)
	}
	if e := fairlead.NotFound("install-not-found", "acme"); e.Error() != `there is no install "acme"` || e.Hint != "{install.list} shows what exists." {
		t.Errorf("NotFound returns %q, hint %q", e, e.Hint)
	}
}

func TestNotFoundHintsNameExistingActionsOnly(t *testing.T) {
	for _, code := range []fairlead.Code{"component-not-found", "session-not-found", "version-not-found", "artifact-not-found", "plan-not-found", "output-not-found"} {
		if e := fairlead.NotFound(code, "x"); e.Hint != "" || e.Code != code {
			t.Errorf("for %s the hint is %q", code, e.Hint)
		}
	}
}

func TestTimeOfReturnsTheCreationTime(t *testing.T) {
	at := time.Date(2026, 11, 22, 3, 17, 0, 42e6, time.UTC)
	if got, ok := fairlead.TimeOf(fairlead.RandomIDs(func() time.Time { return at })("job")); !ok || !got.Equal(at) {
		t.Errorf("TimeOf returns %s, %t", got, ok)
	}
	for _, other := range []string{"", "job", "job_", "job_1", "ver_c7d591a684ea60aad64bc8db6e!", "job_00vhnczb00zrhgb3mjkk4bskabx", "job_uuvhnczb00zrhgb3mjkk4bskab"} {
		if got, ok := fairlead.TimeOf(other); ok {
			t.Errorf("TimeOf(%q) returns %s", other, got)
		}
	}
}
