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

// BundleFile is a file of an archive.
type BundleFile struct {
	Name string
	Text []byte
}

// WriteBundle writes an archive of files below a directory, and hides the secrets.
func WriteBundle(w io.Writer, directory string, files []BundleFile, secrets *Secrets, modified time.Time) error {
	zipped := gzip.NewWriter(w)
	archive := tar.NewWriter(zipped)
	for _, bundled := range files {
		text := secrets.Hide(bundled.Text)
		header := &tar.Header{
			Name: directory + "/" + bundled.Name, Mode: 0o600, Size: int64(len(text)), ModTime: modified,
			Format: tar.FormatPAX,
		}
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		if _, err := archive.Write(text); err != nil {
			return err
		}
	}
	return errors.Join(archive.Close(), zipped.Close())
}

// Tail returns the last lines of a file, at most size bytes.
func Tail(path string, size int64) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // it was only read
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	from := max(0, info.Size()-size)
	text, err := io.ReadAll(io.NewSectionReader(file, from, size))
	if from > 0 {
		if _, lines, complete := bytes.Cut(text, []byte("\n")); complete {
			text = lines
		}
	}
	return text, err
}

// Secrets holds the secrets in a configuration and in the files that it names.
type Secrets struct{ values []string }

const hiddenMark = secret.Mark

var (
	// secretKey matches the name of a setting that may hold a secret, or name a file with secrets.
	secretKey = regexp.MustCompile(`(?i)token|password|passwd|secret|credential|privatekey|(^|[^a-z])key$`)
	// namesFile matches the name of a setting that names a file. The report keeps the file's name.
	namesFile = regexp.MustCompile(`(?i)file$|^(key|tokens|privateKey)$`)
	// userInfo matches user and password before the host of an address.
	userInfo = regexp.MustCompile(`(://)[^/@\s"'<>]+@`)
	// secretInLog matches the usual forms of secrets in lines of logs.
	secretInLog = regexp.MustCompile(`(?i)\b((?:authorization|bearer|basic|(?:[a-z_-]*(?:token|password|passwd|secret|credential)))["']` +
		`?(?:\s*[:=]\s*|\s+)["']?(?:bearer\s+|basic\s+)?)([^\s"',;]{6,})`)
	// privateKeyPEM matches a private key.
	privateKeyPEM = regexp.MustCompile(`(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|\z)`)
)

// leastSecret is the least length of a secret that is hidden everywhere: a shorter one would match other texts.
const leastSecret = 6

// leastWord is the least length of a word of a file with secrets that counts as a secret: shorter words are names.
const leastWord = 12

func (s *Secrets) add(value string) {
	value = strings.TrimSpace(value)
	if len(value) < leastSecret {
		return
	}
	for _, form := range []string{
		value, url.QueryEscape(value), url.PathEscape(value),
		base64.StdEncoding.EncodeToString([]byte(value)),
	} {
		if !slices.Contains(s.values, form) {
			s.values = append(s.values, form)
		}
	}
}

// Hide replaces the secrets, and private keys.
func (s *Secrets) Hide(text []byte) []byte {
	// The longest first: a secret may be a part of another.
	slices.SortStableFunc(s.values, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	for _, value := range s.values {
		text = bytes.ReplaceAll(text, []byte(value), []byte(hiddenMark))
	}
	text = privateKeyPEM.ReplaceAll(text, []byte(hiddenMark))
	text = userInfo.ReplaceAll(text, []byte("${1}"+hiddenMark+"@"))
	return secret.Parameter.ReplaceAll(text, []byte("${1}"+hiddenMark))
}

// HideInLog replaces texts that look like secrets, in lines that other programs may have written.
func HideInLog(text []byte) []byte { return secretInLog.ReplaceAll(text, []byte("${1}"+hiddenMark)) }

// maxSecretFile is the largest size in bytes of a file with secrets.
const maxSecretFile = 1 << 20

// Configuration returns the configuration of a file in a directory without comments and secrets. It adds to s the
// secrets of the configuration and of the files that it names.
func (s *Secrets) Configuration(text []byte, directory string) ([]byte, error) {
	var root yaml.Node
	if err := yaml.Unmarshal(text, &root); err != nil {
		return nil, errors.New("it is no YAML, and is left out: its secrets cannot be recognized")
	}
	s.Clean(&root, "", directory)
	return yaml.Marshal(&root)
}

// Clean removes secrets and comments from the tree of settings under key, in the configuration of a file in a
// directory. It adds the secrets to s.
func (s *Secrets) Clean(node *yaml.Node, key, directory string) {
	node.HeadComment, node.LineComment, node.FootComment = "", "", ""
	switch node.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(node.Content); i += 2 {
			s.Clean(node.Content[i], "", directory)
			s.Clean(node.Content[i+1], node.Content[i].Value, directory)
		}
	case yaml.ScalarNode:
		s.scalar(node, key, directory)
	default: // the entries of a list have the list's key; an anchor is cleaned at its definition
		for _, child := range node.Content {
			s.Clean(child, key, directory)
		}
	}
}

func (s *Secrets) scalar(node *yaml.Node, key, directory string) {
	if _, rest, ok := strings.Cut(node.Value, "://"); ok {
		if separator := strings.LastIndex(rest, "@"); separator >= 0 {
			user, password, _ := strings.Cut(rest[:separator], ":")
			s.add(password)
			if password == "" {
				s.add(user)
			}
			if plain, err := url.PathUnescape(password); err == nil {
				s.add(plain)
			}
			node.Value = strings.Replace(node.Value, rest[:separator]+"@", hiddenMark+"@", 1)
		}
		node.Value = secret.Parameter.ReplaceAllString(node.Value, "${1}"+hiddenMark)
		return
	}
	if !secretKey.MatchString(key) {
		return
	}
	path := node.Value
	if !filepath.IsAbs(path) {
		path = filepath.Join(directory, path)
	}
	info, err := os.Stat(path)
	switch {
	case err == nil && info.Mode().IsRegular():
		if info.Size() <= maxSecretFile {
			text, err := os.ReadFile(path)
			if err == nil {
				s.add(string(text))
				for word := range strings.FieldsSeq(string(text)) { // a file may have several tokens, or a token and a name
					if len(word) >= leastWord {
						s.add(word)
					}
				}
			}
		}
	case namesFile.MatchString(key) && strings.ContainsAny(node.Value, "/."):
		// The file is missing, and its name helps the reader of the report.
	default:
		s.add(node.Value)
		node.Value = hiddenMark
	}
}
