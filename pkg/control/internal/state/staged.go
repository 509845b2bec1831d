package state

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/pkg/blob"
	"github.com/fairlead/fairlead/pkg/control/internal/kernel"
	"github.com/fairlead/fairlead/pkg/fairlead"
)

// stagedPrefix is the prefix of staged parts: staged/<job>/<epoch>/<digest>/<part>, and
// staged/<stagedByPeople>/<hash of org and token>/<digest>/<part>. The bucket on AWS also expires blobs
// with this prefix.
const stagedPrefix = "staged/"

// stagedByPeople takes the place of the job in the keys of people's parts. No job has this identifier.
const stagedByPeople = "people"

// maxStagedBodies is the largest number of bodies of which a stager may have parts in store. The parts of a body that has
// served its request are deleted, so more than a few are left only by a stager that fills the vendor's storage.
const maxStagedBodies = 64

// answerPrefix is the prefix of the numbers of an answer's parts. Answers do not count as bodies that the stager stored:
// a migration of many large states gets an answer for each.
const answerPrefix = "answer-"

// Stager stores and gets the parts of its bodies: an attempt, or a person with an API token. No other
// stager gets them.
type Stager struct {
	Attempt kernel.Holder
	Person  kernel.User // if Attempt is zero
}

// prefix returns the part of the keys that belongs to the stager.
func (s Stager) prefix() string {
	if s.Attempt.Job != "" {
		return fmt.Sprintf("%s%s/%d", stagedPrefix, s.Attempt.Job, s.Attempt.Epoch)
	}
	return fmt.Sprintf("%s%s/%x", stagedPrefix, stagedByPeople, sha256.Sum256([]byte(string(s.Person.Org)+"/"+s.Person.Token.Token)))
}

func (s Stager) String() string {
	if s.Attempt.Job != "" {
		return fmt.Sprintf("job %s (epoch %d)", s.Attempt.Job, s.Attempt.Epoch)
	}
	return "the API token " + s.Person.Token.Name
}

// Staged names a body that is stored in parts, because it is too large for one request or one answer.
type Staged struct {
	Digest string // SHA-256 in hex
	Size   int64  // in bytes
}

// StagedOf returns the name of data as a staged body.
func StagedOf(data []byte) Staged {
	return Staged{Digest: fmt.Sprintf("%x", sha256.Sum256(data)), Size: int64(len(data))}
}

// partKey returns the key of a part, which is also the context of its seal: no part can take the place of
// another.
func (s Stager) partKey(digest string, part int) string {
	return fmt.Sprintf("%s/%s/%06d", s.prefix(), digest, part)
}

// answerKey returns the key of a part of an answer, as partKey does.
func (s Stager) answerKey(digest string, part int) string {
	return fmt.Sprintf("%s/%s/%s%06d", s.prefix(), digest, answerPrefix, part)
}

// StagePart seals and stores a part of a body of of.Size bytes. Parts count from 0. All parts but the last have the same
// size, and the last is not larger. So part n has at most of.Size/(n+1) bytes, and StagePart refuses a larger one. It
// also refuses the parts of more than maxStagedBodies bodies. A staged body changes nothing: a
// later request of the same stager names it in place of its own body, and the rules of that request
// decide. A part of an attempt that can commit nothing any more is refused. CollectBlobs deletes the
// parts of such an attempt, and those of people that no request has used.
func (st *States) StagePart(ctx context.Context, by Stager, of Staged, part int, data []byte) error {
	if h := by.Attempt; h.Job != "" {
		may, err := st.mayCommit(ctx, h)
		if err == nil && !may {
			_, err = st.Held(ctx, h) // the error names the epoch that has the lease
		}
		if err != nil {
			return err
		}
	}
	if int64(part+1)*int64(len(data)) > of.Size {
		return notStaged(by, of.Digest, fmt.Sprintf("part %d with %d bytes is behind its end, which is at %d", part, len(data), of.Size))
	}
	keys, err := st.Blobs.List(ctx, by.prefix()+"/")
	if err != nil {
		return err
	}
	bodies := map[string]bool{of.Digest: true}
	for _, key := range keys {
		if digest, number, _ := strings.Cut(strings.TrimPrefix(key, by.prefix()+"/"), "/"); !strings.HasPrefix(number, answerPrefix) {
			bodies[digest] = true
		}
	}
	if len(bodies) > maxStagedBodies {
		return notStaged(by, of.Digest, fmt.Sprintf("parts of %d other bodies wait for their requests, and no more may", maxStagedBodies))
	}
	key := by.partKey(of.Digest, part)
	return st.SealBlob(ctx, key, data, key)
}

// StagedPart returns a part of an answer that the stager asked for. An attempt must have the lease,
// because an answer can contain a state.
func (st *States) StagedPart(ctx context.Context, by Stager, digest string, part int) ([]byte, error) {
	if by.Attempt.Job != "" {
		if _, err := st.Held(ctx, by.Attempt); err != nil {
			return nil, err
		}
	}
	return st.openPart(ctx, by, by.answerKey(digest, part), digest, part)
}

// StagedBody returns the body that the stager stored in parts, and the keys of the parts, for DropBlobs
// after the body has served its request. It does not check the lease: the request that names the body does.
// The caller limits the size.
func (st *States) StagedBody(ctx context.Context, by Stager, s Staged) (data []byte, keys []string, err error) {
	data = make([]byte, 0, s.Size)
	for part := 0; int64(len(data)) < s.Size; part++ {
		b, err := st.openPart(ctx, by, by.partKey(s.Digest, part), s.Digest, part)
		if err != nil {
			return nil, nil, err
		}
		if len(b) == 0 || int64(len(data)+len(b)) > s.Size {
			return nil, nil, notStaged(by, s.Digest, "its parts have another size than it")
		}
		data, keys = append(data, b...), append(keys, by.partKey(s.Digest, part))
	}
	if StagedOf(data).Digest != s.Digest {
		return nil, nil, notStaged(by, s.Digest, "its parts have another digest than it")
	}
	return data, keys, nil
}

// StageAnswer stores data in parts of at most size bytes, from which the stager gets it. The parts
// remain until CollectBlobs or the bucket removes them, because their reader may read them again.
func (st *States) StageAnswer(ctx context.Context, by Stager, data []byte, size int) (Staged, error) {
	s, part := StagedOf(data), 0
	for b := range slices.Chunk(data, size) {
		key := by.answerKey(s.Digest, part)
		if err := st.SealBlob(ctx, key, b, key); err != nil {
			return Staged{}, err
		}
		part++
	}
	return s, nil
}

func (st *States) openPart(ctx context.Context, by Stager, key, digest string, part int) ([]byte, error) {
	b, err := st.OpenBlob(ctx, key, key)
	if errors.Is(err, blob.ErrNotFound) {
		return nil, notStaged(by, digest, fmt.Sprintf("part %d is missing", part))
	}
	return b, err
}

func notStaged(by Stager, digest, why string) error {
	return &fairlead.Error{Kind: fairlead.KindInvalid, Code: fairlead.CodeBodyNotStaged,
		Message: fmt.Sprintf("%s has no staged body %.12s: %s", by, digest, why), Hint: "Send its parts again, then repeat the request."}
}

// mayCommit reports whether a request of the attempt can still change something: the attempt has the lease, or
// a lock with which its tool may save its state (see PutState).
func (st *States) mayCommit(ctx context.Context, h kernel.Holder) (bool, error) {
	r, err := st.Held(ctx, h)
	if err == nil || fairlead.KindOf(err) != fairlead.KindStale {
		return err == nil, err
	}
	heads, err := st.Store.States(ctx, r.V.Install)
	for _, head := range heads {
		if l := head.V.Lock; l != nil && l.Job == h.Job && l.Epoch == h.Epoch {
			return true, nil
		}
	}
	return false, err
}

// partNamed reports whether a request may still name the part.
func (st *States) partNamed(ctx context.Context, key string) (bool, error) {
	parts := strings.Split(strings.TrimPrefix(key, stagedPrefix), "/")
	if parts[0] == stagedByPeople {
		return false, nil // a request that needs it follows within a minute, or sends it again
	}
	epoch, err := strconv.ParseInt(parts[min(1, len(parts)-1)], 10, 64)
	if err != nil || len(parts) != 4 {
		return true, nil // unknown kind of blob: keep it
	}
	may, err := st.mayCommit(ctx, kernel.Holder{Job: fairlead.JobID(parts[0]), Epoch: epoch})
	if fairlead.KindOf(err) == fairlead.KindNotFound {
		return false, nil // its install was forgotten
	}
	return may, err
}
