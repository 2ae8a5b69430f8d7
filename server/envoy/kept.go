package envoy

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"tributary/resource"
)

// What is in quarantine is kept in a file. After a restart it would not be known otherwise what is served in the place of a rejected object, and an Envoy
// that starts then would have nothing that is made of it.

// keptObject is an object in quarantine, as it is kept.
type keptObject struct {
	Kind      resource.Kind `json:"kind"`
	Namespace string        `json:"namespace,omitempty"`
	Name      string        `json:"name"`
	Version   string        `json:"version"`
	Since     time.Time     `json:"since"`
	TypeURL   string        `json:"type_url"`
	Resources []string      `json:"resources"`
	Error     string        `json:"error"`
	Node      string        `json:"node"`
	Peer      string        `json:"peer"`
	Host      string        `json:"host"`
	Only      string        `json:"only,omitempty"`
	Of        reach         `json:"of,omitempty"`

	Serves *keptVersion `json:"serves,omitempty"` // nothing if the object is left out
}

// keptVersion is what is served in the place of an object.
type keptVersion struct {
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Created     time.Time         `json:"created"`
	Body        []byte            `json:"body"`
}

// kept returns what is to be kept. An object that is not there is: its source may not have been read yet, unless all is known.
func (q *quarantine) kept(all bool) []keptObject {
	list := []keptObject{}
	for _, a := range q.each(func(a *aside) bool { return a.now != nil || !all }) {
		why := a.why
		o := keptObject{
			Kind: why.Key.Kind, Namespace: why.Key.Namespace, Name: why.Key.Name, Version: why.Version, Since: why.Since,
			TypeURL: why.TypeURL, Resources: why.Resources, Error: why.Error, Node: why.Node, Peer: why.Peer, Host: why.host, Only: why.Only, Of: why.of,
		}
		if r := a.serves(); r != nil {
			o.Serves = &keptVersion{r.Labels(), r.Annotations(), r.Created(), r.Body()}
		}
		list = append(list, o)
	}
	return list
}

// restore sets aside what was kept.
func (q *quarantine) restore(data []byte) error {
	var list []keptObject
	if err := json.Unmarshal(data, &list); err != nil {
		return err
	}
	for _, o := range list[:min(len(list), maxPlaces+maxAsides)] {
		key := resource.Key{Kind: o.Kind, Namespace: o.Namespace, Name: o.Name}
		why := &Quarantined{
			Key: key, Version: o.Version, Since: o.Since, TypeURL: o.TypeURL, Resources: o.Resources, Error: o.Error, Node: o.Node, Peer: o.Peer, host: o.Host, Only: o.Only, of: o.Of,
		}
		var serves *resource.Resource
		if v := o.Serves; v != nil {
			serves = resource.FromBody(resource.Meta{Key: key, Labels: v.Labels, Annotations: v.Annotations, Created: v.Created}, v.Body)
			why.Serves = serves.Version()
		}
		q.add(key, o.Of, &aside{trial: &trial{key: key, earlier: []*resource.Resource{serves}}, why: why})
	}
	return nil
}

// restore reads what an earlier run kept.
func (c *Catalog) restore() {
	if c.file == "" {
		return
	}
	data, err := os.ReadFile(c.file)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err == nil {
		err = c.quarantine.restore(data)
	}
	if err != nil {
		c.log.Error("what was in quarantine for Envoys is not known any more", "file", c.file, "err", err)
	}
}

// Rest has the file be left as it is, or with false be written again.
func (c *Catalog) Rest(rests bool) {
	c.keeping.Lock()
	defer c.keeping.Unlock()
	c.rests = rests
}

// Forget has the file be removed, and not be written any more.
func (c *Catalog) Forget() error {
	c.keeping.Lock()
	defer c.keeping.Unlock()
	file := c.file
	if c.file = ""; file == "" {
		return nil
	}
	if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// keep writes what is in quarantine, if that has changed.
func (c *Catalog) keep() {
	c.keeping.Lock()
	defer c.keeping.Unlock()
	if c.file == "" || c.rests {
		return
	}
	c.mu.Lock()
	if !c.quarantine.changed {
		c.mu.Unlock()
		return
	}
	c.quarantine.changed = false
	list := c.quarantine.kept(c.synced)
	c.mu.Unlock()
	data, err := json.MarshalIndent(list, "", "  ")
	if err == nil {
		err = replaceFile(c.file, data)
	}
	if err != nil {
		c.log.Error("what is in quarantine for Envoys will not be known after a restart", "file", c.file, "err", err)
	}
}

// replaceFile writes a file so that there is the old one or the new one, whatever happens.
func replaceFile(path string, content []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	defer func() { _ = os.Remove(f.Name()) }()
	_, err = f.Write(content)
	if err == nil {
		err = f.Sync()
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return os.Rename(f.Name(), path)
}
