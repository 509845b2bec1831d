package archive

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/fairlead/fairlead/pkg/joblog"
)

// frame is the number of bytes of a log in one member of a file. The last member may have
// fewer bytes. The longest read unpacks two members.
const frame = 1 << 20

// maxPlain is the maximum length of a job name in a key. A longer name is hashed, because a
// segment of a key has at most 120 bytes.
const maxPlain = 100

// jobKey returns the prefix of the keys of the job's blobs. If the job's name cannot be a
// segment of a key, the prefix contains the digest of the name instead. The digest follows
// "sha256=": no job name contains "=", so no two jobs have the same prefix.
func jobKey(job string) string {
	if len(job) > maxPlain || strings.Trim(job, ".") == "" {
		sum := sha256.Sum256([]byte(job))
		job = "sha256=" + hex.EncodeToString(sum[:])
	}
	return "logs/" + job + "/"
}

func blobKey(info joblog.Info) string {
	return fmt.Sprintf("%s%d-%d-%08x.gz", jobKey(info.Stream.Job), info.Stream.Epoch, info.Size, info.CRC32)
}

// described returns what the key of a blob says about its stream, or false if it is not the key of a stream of the job.
func described(job, key string) (info joblog.Info, ok bool) {
	info = joblog.Info{Stream: joblog.Stream{Job: job}, Ended: true}
	name, _ := strings.CutPrefix(key, jobKey(job))
	if n, err := fmt.Sscanf(name, "%d-%d-%x.gz", &info.Stream.Epoch, &info.Size, &info.CRC32); n < 3 || err != nil {
		return info, false
	}
	return info, blobKey(info) == key
}

// header is the index of a file. It is in the gzip extra field of the first member. The
// first member has no data.
type header struct {
	V         int    `json:"v"` // 1
	Job       string `json:"job"`
	Epoch     int64  `json:"epoch"`
	Size      int64  `json:"size"`
	CRC32     uint32 `json:"crc32"` // IEEE
	Truncated bool   `json:"truncated"`
	Frames    []int  `json:"frames"` // compressed size of each member after the first
}

// subfield is the identifier of our subfield in the extra field. RFC 1952, 2.3.1.1, allows
// several subfields.
const subfield = "FL"

// file is an archived stream.
type file struct {
	header
	body []byte // the members after the first
}

// pack returns the stream in the format of an archive file.
func pack(info joblog.Info, data []byte) ([]byte, error) {
	h := header{V: 1, Job: info.Stream.Job, Epoch: info.Stream.Epoch, Size: info.Size, CRC32: info.CRC32, Truncated: info.Truncated}
	var body bytes.Buffer
	for rest := data; len(rest) > 0; {
		n, before := min(len(rest), frame), body.Len()
		if err := member(&body, gzip.Header{OS: 255}, rest[:n]); err != nil {
			return nil, err
		}
		h.Frames = append(h.Frames, body.Len()-before)
		rest = rest[n:]
	}
	index, err := json.Marshal(h)
	if err != nil {
		return nil, err
	}
	extra := binary.LittleEndian.AppendUint16([]byte(subfield), uint16(len(index))) // the index of the largest log has about 500 bytes
	var out bytes.Buffer
	if err := member(&out, gzip.Header{OS: 255, Extra: append(extra, index...)}, nil); err != nil {
		return nil, err
	}
	_, err = body.WriteTo(&out)
	return out.Bytes(), err
}

func member(w io.Writer, h gzip.Header, data []byte) error {
	z := gzip.NewWriter(w)
	z.Header = h
	_, err := z.Write(data)
	return errors.Join(err, z.Close())
}

// openFile reads the index of a file and checks that the file contains the stream that info
// describes.
func openFile(info joblog.Info, b []byte) (*file, error) {
	r := bytes.NewReader(b)
	z, err := gzip.NewReader(r)
	if err != nil {
		return nil, err
	}
	z.Multistream(false)
	if n, err := io.Copy(io.Discard, io.LimitReader(z, 1)); n > 0 || err != nil {
		return nil, errors.Join(err, errors.New("the first member of the file is not an index"))
	}
	index := z.Extra
	if len(index) < len(subfield)+2 || string(index[:len(subfield)]) != subfield {
		return nil, errors.New("the file has no index")
	}
	index = index[len(subfield):]
	n := int(binary.LittleEndian.Uint16(index))
	if index = index[2:]; len(index) < n {
		return nil, errors.New("the index of the file is truncated")
	}
	f := &file{body: b[len(b)-r.Len():]}
	if err := json.Unmarshal(index[:n], &f.header); err != nil {
		return nil, fmt.Errorf("decode the index of the file: %w", err)
	}
	if f.V != 1 || f.Job != info.Stream.Job || f.Epoch != info.Stream.Epoch || f.Size != info.Size || f.CRC32 != info.CRC32 {
		return nil, fmt.Errorf("the file contains %d bytes of log %s@%d", f.Size, f.Job, f.Epoch)
	}
	left := len(f.body)
	for _, n := range f.Frames {
		if left -= n; n <= 0 || left < 0 {
			return nil, errors.New("the index of the file does not match its members")
		}
	}
	if want := (f.Size + frame - 1) / frame; left != 0 || int64(len(f.Frames)) != want {
		return nil, errors.New("the index of the file does not match its members")
	}
	return f, nil
}

// read returns the bytes from offset up to, but not including, end. The stream must have
// these bytes.
func (f *file) read(offset, end int64) ([]byte, error) {
	out := make([]byte, 0, end-offset)
	at, body := int64(0), f.body
	for _, n := range f.Frames {
		size := min(frame, f.Size-at)
		if at < end && offset < at+size {
			data, err := unpack(body[:n], size)
			if err != nil {
				return nil, fmt.Errorf("unpack the bytes from %d: %w", at, err)
			}
			out = append(out, data[max(0, offset-at):min(end-at, size)]...)
		}
		at, body = at+size, body[n:]
	}
	return out, nil
}

// unpack returns the uncompressed bytes of a member, or an error if their number is not size.
func unpack(member []byte, size int64) ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(member))
	if err != nil {
		return nil, err
	}
	data := make([]byte, size)
	if _, err := io.ReadFull(z, data); err != nil {
		return nil, err
	}
	if n, err := z.Read(make([]byte, 1)); n > 0 || !errors.Is(err, io.EOF) {
		return nil, errors.Join(err, errors.New("a member has more bytes than its index says"))
	}
	return data, nil
}

// maxCache is the maximum size of all cached files of a Log together, in bytes. With the
// cache, a reader that reads a log in parts fetches the file only once. A file
// usually has at most a tenth of the size of its log.
const maxCache = 32 << 20

// cache holds the most recently read files.
type cache struct {
	mu    sync.Mutex
	files *simplelru.LRU[string, *file]
	size  int
}

func newCache() *cache {
	c := &cache{}
	var err error
	if c.files, err = simplelru.NewLRU(maxCache, func(_ string, f *file) { c.size -= len(f.body) }); err != nil {
		panic(err) // the size is positive
	}
	return c
}

func (c *cache) get(key string) *file {
	c.mu.Lock()
	defer c.mu.Unlock()
	f, _ := c.files.Get(key)
	return f
}

func (c *cache) put(key string, f *file) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(f.body) > maxCache {
		return
	}
	c.files.Remove(key)
	for c.size+len(f.body) > maxCache {
		c.files.RemoveOldest()
	}
	c.files.Add(key, f)
	c.size += len(f.body)
}

func (c *cache) drop(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.files.Remove(key)
}
