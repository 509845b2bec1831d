package step

import (
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/pkg/api/client"
	"github.com/fairlead/fairlead/pkg/api/wire"
	"github.com/fairlead/fairlead/runner/attempt"
)

// The control plane acknowledges log bytes and loses them in a power cut. It refuses the report
// and names the offset at which its log ends. The step sends the log again. It must not treat the refusal as a lost lease.
func TestFinishResendsALogLostInAPowerCut(t *testing.T) {
	const whole = "made: one\nmade: two\n"
	for _, tt := range []struct {
		name  string
		left  string // the part of the log that the control plane still has
		never bool   // the control plane accepts no log bytes
		want  string
	}{
		{"the end of the log is lost", "made: one\n", false, whole},
		{"the whole log is lost", "", false, whole},
		{"the log is refused for good", "", true, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			stored, reported := tt.left, wire.FinishRequest{}
			problem := func(w http.ResponseWriter, status int, code string, details map[string]string) {
				w.Header().Set("Content-Type", "application/problem+json")
				w.WriteHeader(status)
				json.NewEncoder(w).Encode(map[string]any{"type": wire.ProblemType + code, "status": status, "title": code, "details": details})
			}
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch {
				case strings.HasSuffix(r.URL.Path, "/finish"):
					var in wire.FinishRequest
					json.NewDecoder(r.Body).Decode(&in)
					if in.Log.Size > int64(len(stored)) {
						problem(w, http.StatusConflict, "log-offset", map[string]string{"want": strconv.Itoa(len(stored))})
						return
					}
					reported = in
					w.WriteHeader(http.StatusNoContent)
				case strings.HasSuffix(r.URL.Path, "/log"):
					b, _ := io.ReadAll(r.Body)
					offset, err := strconv.Atoi(r.URL.Query().Get("offset"))
					switch {
					case err != nil || tt.never:
						problem(w, http.StatusRequestEntityTooLarge, "log-full", nil)
					case offset > len(stored):
						problem(w, http.StatusConflict, "log-offset", map[string]string{"want": strconv.Itoa(len(stored))})
					default:
						stored = stored[:offset] + string(b)
						fmt.Fprintf(w, `{"next": %d}`, len(stored))
					}
				}
			}))
			defer srv.Close()
			dir := attempt.Dir(t.TempDir())
			if err := os.WriteFile(dir.Path(attempt.LogFile), []byte(whole), 0o600); err != nil {
				t.Fatal(err)
			}
			a := &execution{in: attempt.Input{Job: "job_1", Epoch: 1}, dir: dir, Env: Env{
				Log: slog.New(slog.DiscardHandler), Random: func() float64 { return 0 }}}
			c, err := client.New(srv.URL, "token", client.Options{Retries: -1})
			if err != nil {
				t.Fatal(err)
			}
			code := a.finish(t.Context(), c, wire.FinishRequest{Outcome: "succeeded",
				Log: wire.LogEnd{Size: int64(len(whole)), CRC32: crc32.ChecksumIEEE([]byte(whole))}})
			if code != attempt.ExitFinished || reported.Outcome != "succeeded" {
				t.Errorf("exit code %d, reported outcome %q", code, reported.Outcome)
			}
			if stored != tt.want || reported.Log.Truncated != tt.never {
				t.Errorf("the log is %q, truncated %v", stored, reported.Log.Truncated)
			}
		})
	}
}
