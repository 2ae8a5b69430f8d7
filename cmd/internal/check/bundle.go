package check

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"tributary/internal/secret"
)

// BundleFile is one of an archive.
type BundleFile struct {
	Name string
	Text []byte
}

// WriteBundle writes an archive of files below dir, without what secrets knows.
func WriteBundle(w io.Writer, dir string, files []BundleFile, secrets *Secrets, at time.Time) error {
	zipped := gzip.NewWriter(w)
	archive := tar.NewWriter(zipped)
	for _, f := range files {
		text := secrets.Hide(f.Text)
		header := &tar.Header{Name: dir + "/" + f.Name, Mode: 0o600, Size: int64(len(text)), ModTime: at, Format: tar.FormatPAX}
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		if _, err := archive.Write(text); err != nil {
			return err
		}
	}
	return errors.Join(archive.Close(), zipped.Close())
}

// Tail is the end of a text, from the beginning of a line, of size bytes at most.
func Tail(in io.ReadSeeker, size int64) ([]byte, error) {
	end, err := in.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, err
	}
	from := max(0, end-size)
	if _, err := in.Seek(from, io.SeekStart); err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(in, size))
	if from > 0 {
		if i := bytes.IndexByte(text, '\n'); i >= 0 {
			text = text[i+1:]
		}
	}
	return text, err
}

// Secrets are those that a configuration has, or names files of.
type Secrets struct{ values []string }

const hidden = secret.Mark

var (
	// secretKey is the name of a setting that may have a secret, or name a file that does.
	secretKey = regexp.MustCompile(`(?i)token|password|passwd|secret|credential|privatekey|(^|[^a-z])key$`)
	// namesFile is the name of one that names a file, and is of interest.
	namesFile = regexp.MustCompile(`(?i)file$|^(key|tokens|privateKey)$`)
	// userInfo stands in an address before its host.
	userInfo = regexp.MustCompile(`(://)[^/@\s"'<>]+@`)
	// said is how a secret may stand in a line of a log.
	said = regexp.MustCompile(`(?i)\b((?:authorization|bearer|basic|(?:[a-z_-]*(?:token|password|passwd|secret|credential)))["']` +
		`?(?:\s*[:=]\s*|\s+)["']?(?:bearer\s+|basic\s+)?)([^\s"',;]{6,})`)
	// pem is a private key.
	pem = regexp.MustCompile(`(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|\z)`)
)

// leastSecret is how long a text must be to be hidden wherever it stands: hiding shorter ones would hide what is no secret.
const leastSecret = 6

// leastWord is how long a word must be that stands with others in a file with secrets: shorter ones are names.
const leastWord = 12

func (s *Secrets) add(value string) {
	value = strings.TrimSpace(value)
	if len(value) < leastSecret {
		return
	}
	for _, form := range []string{value, url.QueryEscape(value), url.PathEscape(value), base64.StdEncoding.EncodeToString([]byte(value))} {
		if !slices.Contains(s.values, form) {
			s.values = append(s.values, form)
		}
	}
}

// Hide replaces what is known to be secret, and private keys.
func (s *Secrets) Hide(text []byte) []byte {
	// The longest first: one may be a part of another.
	slices.SortStableFunc(s.values, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	for _, value := range s.values {
		text = bytes.ReplaceAll(text, []byte(value), []byte(hidden))
	}
	text = pem.ReplaceAll(text, []byte(hidden))
	text = userInfo.ReplaceAll(text, []byte("${1}"+hidden+"@"))
	return secret.Parameter.ReplaceAll(text, []byte("${1}"+hidden))
}

// HideInLog replaces also what looks like a secret in lines that other programs may have written, too.
func HideInLog(text []byte) []byte { return said.ReplaceAll(text, []byte("${1}"+hidden)) }

// maxSecretFile is how large a file with a secret may be, in bytes: others are none.
const maxSecretFile = 1 << 20

// Configuration returns a configuration, of a file in dir, without comments and secrets, and notes in s the secrets that it has and that
// the files have that it names.
func (s *Secrets) Configuration(text []byte, dir string) ([]byte, error) {
	var root yaml.Node
	if err := yaml.Unmarshal(text, &root); err != nil {
		return nil, errors.New("it is no YAML, and is left out: what is secret in it cannot be told")
	}
	s.Clean(&root, "", dir)
	return yaml.Marshal(&root)
}

// Clean takes secrets and comments out of the tree of the settings that stand under key in a configuration of a file in dir, and notes the
// secrets.
func (s *Secrets) Clean(n *yaml.Node, key, dir string) {
	n.HeadComment, n.LineComment, n.FootComment = "", "", ""
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			s.Clean(n.Content[i], "", dir)
			s.Clean(n.Content[i+1], n.Content[i].Value, dir)
		}
	case yaml.ScalarNode:
		s.scalar(n, key, dir)
	default: // of a list the key is that of all; an anchor is cleaned where it stands
		for _, child := range n.Content {
			s.Clean(child, key, dir)
		}
	}
}

func (s *Secrets) scalar(n *yaml.Node, key, dir string) {
	if _, rest, ok := strings.Cut(n.Value, "://"); ok {
		if at := strings.LastIndex(rest, "@"); at >= 0 {
			user, password, _ := strings.Cut(rest[:at], ":")
			s.add(password)
			if password == "" {
				s.add(user)
			}
			if plain, err := url.PathUnescape(password); err == nil {
				s.add(plain)
			}
			n.Value = strings.Replace(n.Value, rest[:at]+"@", hidden+"@", 1)
		}
		n.Value = secret.Parameter.ReplaceAllString(n.Value, "${1}"+hidden)
		return
	}
	if !secretKey.MatchString(key) {
		return
	}
	path := n.Value
	if !filepath.IsAbs(path) {
		path = filepath.Join(dir, path)
	}
	info, err := os.Stat(path)
	switch {
	case err == nil && info.Mode().IsRegular():
		if info.Size() <= maxSecretFile {
			text, err := os.ReadFile(path)
			if err == nil {
				s.add(string(text))
				for word := range strings.FieldsSeq(string(text)) { // of several tokens, or a token and a name
					if len(word) >= leastWord {
						s.add(word)
					}
				}
			}
		}
	case namesFile.MatchString(key) && strings.ContainsAny(n.Value, "/."): // it is not there, and its name is of use
	default:
		s.add(n.Value)
		n.Value = hidden
	}
}
