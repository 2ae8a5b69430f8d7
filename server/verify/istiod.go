package verify

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"tributary/resource"
)

// maxAnswer bounds what is read of an istiod, in bytes.
const maxAnswer = 1 << 30

// Istiod asks an istiod what it stored.
type Istiod struct {
	URL    string // http://HOST:8080
	Client *http.Client
}

// Check says what is wrong with the URL.
func (i *Istiod) Check() error {
	u, err := url.Parse(i.URL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil {
		return fmt.Errorf("want http://HOST:PORT of istiod's debug pages, got %q", i.URL)
	}
	return nil
}

// Stored returns what the istiod has.
func (i *Istiod) Stored(ctx context.Context) ([]Stored, error) {
	page := strings.TrimSuffix(i.URL, "/") + "/debug/configz"
	text, err := get(ctx, i.Client, page)
	if err != nil {
		return nil, err
	}
	stored, err := Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", page, err)
	}
	return stored, nil
}

// IsTributary says whether it is one of ours that is asked, which has what it serves itself under the same name.
func (i *Istiod) IsTributary(ctx context.Context) bool {
	text, err := get(ctx, i.Client, strings.TrimSuffix(i.URL, "/")+"/metrics")
	return err == nil && (bytes.Contains(text, []byte("\ntributary_build_info{")) || bytes.HasPrefix(text, []byte("tributary_build_info{")))
}

// Parse reads istiod's /debug/configz. Kinds that this program does not know are left out.
func Parse(page []byte) ([]Stored, error) {
	var texts []json.RawMessage
	if err := json.Unmarshal(page, &texts); err != nil {
		return nil, fmt.Errorf("not what istiod answers: %w", err)
	}
	stored := make([]Stored, 0, len(texts))
	for _, text := range texts {
		var head struct {
			Kind     resource.Kind `json:"kind"`
			Metadata struct {
				Name            string `json:"name"`
				Namespace       string `json:"namespace"`
				ResourceVersion string `json:"resourceVersion"`
			} `json:"metadata"`
		}
		if err := json.Unmarshal(text, &head); err != nil {
			return nil, fmt.Errorf("not what istiod answers: %w", err)
		}
		if _, known := resource.SchemaOf(head.Kind); !known {
			continue
		}
		s := Stored{
			Key:     resource.Key{Kind: head.Kind, Namespace: head.Metadata.Namespace, Name: head.Metadata.Name},
			Version: head.Metadata.ResourceVersion,
		}
		s.Object, s.Err = object(text)
		if s.Object != nil {
			s.Key = s.Object.Key()
		}
		stored = append(stored, s)
	}
	return stored, nil
}

func object(text []byte) (*resource.Resource, error) {
	docs := resource.Decode("istiod.json", text, resource.Options{})
	if len(docs) != 1 {
		return nil, errors.New("it is no object")
	}
	if err := docs[0].Errors.Err(); err != nil {
		return nil, err
	}
	return docs[0].Resource, nil
}
