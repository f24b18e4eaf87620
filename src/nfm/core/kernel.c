/* Mix and noise in one pass over the feature: what nfm/core/compiled.py calls. Plain C11, no torch headers.

   Noise is keyed by place: for every chunk of an example, Threefry-4x32-13 (Salmon et al. 2011, "Parallel random
   numbers: as easy as 1, 2, 3") of the key, the example and the chunk starts generators side by side (sfc32,
   Doty-Humphrey 2010), which draw its words; sums and shifts only, which every compiler turns into vectors. So any
   split over threads, any order of memory and any machine gives the same bits: there is no fused multiply-add
   (-ffp-contract=off), no libm, and nothing but IEEE additions, products, quotients and square roots in a fixed
   order. The sums are those of nfm/core/mixing.py and noise.py, in the same order too. Beside it: pasted boxes,
   windows of images, and pixels whose new level is drawn from a table. */

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
#define CHUNK 1024 /* elements of an example drawn together: stays in the first-level cache */
#define RUN 4      /* chunks worked on together where an example lies in order: memory is read ahead in runs */
#define BATCH 2    /* such runs that a thread takes at once */
#define LINE 16    /* elements of a line of cache */
#define TILE 16    /* chunks, at most, that are worked on together where channels lie last */
#define LONG 16384 /* elements of an example from which on it is worth to go from one to who is mixed in */
#define STRETCH 32 /* examples of a cycle that are a piece of work where there are few tiles */
#define THREADS 256
#define STACK (1 << 21) /* bytes of a thread: some systems give too few for tiles */
#define INLINE static inline __attribute__((always_inline))

#ifdef NFM_CLONES /* one binary, the widest vectors of the machine that runs it */
#define VECTORISED __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define VECTORISED
#endif

enum law { SILENT, GAUSSIAN, UNIFORM, RADEMACHER }; /* as in nfm/core/compiled.py */

struct noise {
    uint64_t key;
    float level, scale; /* two factors, rounded one after the other */
    int32_t law;
};

/* GOMP_parallel, which lets OpenMP's threads do one work together, or NULL */
typedef void (*team)(void (*work)(void *), void *argument, unsigned threads, unsigned flags);

struct job { /* as in nfm/core/compiled.py */
    float *out;
    const float *in;
    const int64_t *other; /* [examples] who is mixed in (transposed: who took from it), or NULL: nothing is mixed */
    const float *own_parts; /* [examples], or NULL: all have own_part */
    int64_t examples, size, channels; /* channels > 1: an example lies in memory with its channels last */
    float own_part;
    int32_t transposed, threads;
    team team;
    struct noise add, mult, touch;
    float untouched; /* where touch + 1 is below this, there is no noise */
    int64_t *path; /* [examples] along the cycles of `other`, while the job lasts, or NULL: in order */
};

struct pasting { /* as in nfm/core/compiled.py */
    char *out;
    const char *in;
    const int64_t *source; /* [examples] whose box is pasted */
    int64_t examples, planes, rows, row; /* planes of an example, rows of a plane, bytes of a row */
    int64_t top, bottom, left, right; /* the box: rows of a plane, bytes of a row, ends excluded */
    int32_t threads;
    team team;
};

struct cutting { /* as in nfm/core/compiled.py */
    uint8_t *out;
    const uint8_t *in;
    const int64_t *corners; /* [examples, 2] row and column of the image where its window begins */
    const uint8_t *mirrored; /* [examples] */
    int64_t examples, planes, rows, columns, height, width; /* of an image, and of a window */
    int32_t threads;
    team team;
};

struct levels { /* as in nfm/core/compiled.py */
    uint8_t *out;
    const uint8_t *in;
    const uint64_t *keys; /* [examples] */
    const int32_t *table; /* [256 * 256] for an old level and a column: threshold << 8 | (column ^ alias) */
    int64_t examples, size;
    int32_t threads;
    team team;
};

/* --- words -------------------------------------------------------------------------------------------------- */

#define ROTATED(word, by) ((word) << (by) | (word) >> (32 - (by)))
#define MIX(a, b, by) a += b, b = ROTATED(b, by) ^ a
#define TWO_ROUNDS(r0, r1, r2, r3) MIX(c0, c1, r0), MIX(c2, c3, r1), MIX(c0, c3, r2), MIX(c2, c1, r3)
#define EVEN_FOUR TWO_ROUNDS(10, 26, 11, 21), TWO_ROUNDS(13, 27, 23, 5)
#define ODD_FOUR TWO_ROUNDS(6, 20, 17, 11), TWO_ROUNDS(25, 10, 18, 20)
#define ADD_KEY(a, b, c, d, n) c0 += a, c1 += b, c2 += c, c3 += (d) + (n)

#define LANES 16 /* generators side by side: a vector of AVX-512, two of AVX2 */

struct generators { uint32_t a[LANES], b[LANES], c[LANES], counter[LANES]; };

/* Return the generators of a chunk, each started by the words of a counter of its own: the key is k0 k1 0 0, k4 its
   parity. */
INLINE struct generators started(uint64_t key, uint64_t example, uint64_t chunk) {
    const uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32), k4 = 0x1BD11BDAu ^ k0 ^ k1;
    const uint64_t first = chunk * LANES;
    struct generators all;
    for (uint32_t lane = 0; lane < LANES; lane++) {
        uint32_t c0 = (uint32_t)first + lane + k0, c1 = (uint32_t)(first >> 32) + k1;
        uint32_t c2 = (uint32_t)example, c3 = (uint32_t)(example >> 32);
        EVEN_FOUR, ADD_KEY(k1, 0, 0, k4, 1);
        ODD_FOUR, ADD_KEY(0, 0, k4, k0, 2);
        EVEN_FOUR, ADD_KEY(0, k4, k0, k1, 3);
        MIX(c0, c1, 6), MIX(c2, c3, 20);
        all.a[lane] = c0, all.b[lane] = c1, all.c[lane] = c2, all.counter[lane] = c3;
    }
    return all;
}

/* Draw words[count], and more up to a multiple of LANES. */
INLINE void draw_words(uint32_t *restrict words, int count, uint64_t key, uint64_t example, uint64_t chunk) {
    struct generators all = started(key, example, chunk);
    for (int first = 0; first < count; first += LANES)
        for (int lane = 0; lane < LANES; lane++) {
            const uint32_t b = all.b[lane], c = all.c[lane], word = all.a[lane] + b + all.counter[lane]++;
            all.a[lane] = b ^ b >> 9, all.b[lane] = c + (c << 3), all.c[lane] = ROTATED(c, 21) + word;
            words[first + lane] = word;
        }
}

/* --- laws --------------------------------------------------------------------------------------------------- */

/* -2 log(u), u in [2^-32, 1]: u = 2^e m, log(m) = 2 atanh((m - 1) / (m + 1)), four terms of its series */
INLINE float minus_twice_log(float u) {
    int32_t bits, exponent;
    float m;
    memcpy(&bits, &u, 4);
    exponent = (bits - 0x3f3504f3) >> 23; /* of sqrt(1/2): m lies in [sqrt(1/2), sqrt(2)) */
    bits -= exponent * (1 << 23);
    memcpy(&m, &bits, 4);
    const float s = (m - 1.0f) / (m + 1.0f), z = s * s;
    const float series = 1.0f + z * (0.333333333f + z * (0.2f + z * 0.142857143f));
    return (float)exponent * -1.38629436f - 4.0f * s * series;
}

/* Box and Muller (1958): a word for the radius, a word for the angle (two bits of it choose the quadrant). Two loops:
   in one, an element's operations were a longer chain than a processor looks ahead. */
INLINE void gaussian(const uint32_t *restrict words, float *restrict values, int groups, float level) {
    float radius[CHUNK / 4];
    for (int half = 0; half < 4 * groups; half += 2 * groups) {
        for (int g = 0; g < groups; g++) {
            const float u = (float)(int32_t)(words[half + g] >> 1) * 0x1p-31f + 0x1p-32f;
            radius[g] = __builtin_sqrtf(minus_twice_log(u));
        }
        for (int g = 0; g < groups; g++) {
            const uint32_t turn = words[half + g + groups];
            const float angle = (float)((int32_t)turn >> 2) * (0x1.921fb6p-1f * 0x1p-29f); /* pi/4 */
            const float z = angle * angle;
            /* minimax on [-pi/4, pi/4]: errors 4e-9 and 1e-10 */
            const float sine =
                angle + angle * z * (-0x1.555546p-3f + z * (0x1.11076p-7f + z * -0x1.994eb4p-13f));
            const float cosine =
                1.0f - 0.5f * z + z * z * (0x1.55554ap-5f + z * (-0x1.6c0c8cp-10f + z * 0x1.9a025ap-16f));
            const int odd = (int32_t)(turn << 31) < 0; /* a sign chooses in one instruction */
            const float away = (int32_t)(turn << 30) < 0 ? -radius[g] : radius[g];
            values[half + g] = away * (odd ? sine : cosine) * level;
            values[half + g + groups] = away * (odd ? cosine : sine) * level;
        }
    }
}

static inline int length(int64_t size, int64_t chunk) {
    const int64_t rest = size - chunk * CHUNK;
    return rest < CHUNK ? (int)rest : CHUNK;
}

/* Draw chunk `chunk` of an example of `size` elements, with level: values[CHUNK], the first `length` count. */
VECTORISED static void draw(float *restrict values, const struct noise *noise, int64_t example, int64_t size,
                            int64_t chunk) {
    uint32_t words[CHUNK];
    const int groups = (length(size, chunk) + 3) / 4;
    draw_words(words, 4 * groups, noise->key, (uint64_t)example, (uint64_t)chunk);
    const float level = noise->level;
    if (noise->law == GAUSSIAN) gaussian(words, values, groups, level);
    else if (noise->law == UNIFORM)
        for (int i = 0; i < 4 * groups; i++) values[i] = (float)(int32_t)words[i] * 0x1p-31f * level;
    else
        for (int i = 0; i < 4 * groups; i++) values[i] = words[i] >> 31 ? -level : level;
}

/* Draw a noise with its factors; `touched` [count] holds 0 and 1, or is NULL. */
INLINE void draw_scaled(float *restrict values, const struct noise *noise, const float *restrict touched,
                        int64_t example, int64_t size, int64_t chunk) {
    const int count = length(size, chunk);
    draw(values, noise, example, size, chunk);
    if (touched) for (int i = 0; i < count; i++) values[i] *= touched[i];
    if (noise->scale != 1.0f) for (int i = 0; i < count; i++) values[i] *= noise->scale;
}

/* out = (1 + mult) * out + add, each noise if there is one */
INLINE void perturb(const struct job *job, float *restrict out, int64_t example, int64_t chunk) {
    float noise[CHUNK], mask[CHUNK];
    const float *touched = job->touch.law == SILENT ? NULL : mask;
    const int count = length(job->size, chunk);
    if (touched) {
        draw(mask, &job->touch, example, job->size, chunk);
        for (int i = 0; i < count; i++) mask[i] = mask[i] + 1.0f >= job->untouched ? 1.0f : 0.0f;
    }
    if (job->mult.law != SILENT) {
        draw_scaled(noise, &job->mult, touched, example, job->size, chunk);
        for (int i = 0; i < count; i++) out[i] *= 1.0f + noise[i];
    }
    if (job->add.law != SILENT) {
        draw_scaled(noise, &job->add, touched, example, job->size, chunk);
        for (int i = 0; i < count; i++) out[i] += noise[i];
    }
}

/* Return the part of an example itself in its mixture; the other's part is what is left. */
INLINE float own_part(const struct job *job, int64_t example) {
    return job->own_parts ? job->own_parts[example] : job->own_part;
}

/* --- tiles: some chunks of an example, mixed and put in order, or mixed and put back ---------------------------- */

struct blend { /* own * a + part * b, or a alone where b is NULL */
    const float *a, *b;
    float own, part;
};

INLINE struct blend moved(struct blend from, int64_t by) {
    return (struct blend){from.a + by, from.b ? from.b + by : NULL, from.own, from.part};
}

INLINE void mix(float *restrict out, struct blend from, int64_t count) {
    if (!from.b) memcpy(out, from.a, sizeof(float) * (size_t)count);
    else for (int64_t i = 0; i < count; i++) out[i] = from.own * from.a[i] + from.part * from.b[i];
}

typedef float four __attribute__((vector_size(16)));
#ifdef __clang__
#define PICK(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define PICK(a, b, ...) __builtin_shuffle(a, b, (int32_t __attribute__((vector_size(16)))){__VA_ARGS__})
#endif

INLINE four mixed_four(struct blend from, int64_t at) {
    four a, b;
    memcpy(&a, from.a + at, sizeof a);
    if (!from.b) return a;
    memcpy(&b, from.b + at, sizeof b);
    return from.own * a + from.part * b;
}

/* out[j * out_step + i] = from[i * step + j] for i, j < 4 */
INLINE void turn_four(float *restrict out, int64_t out_step, struct blend from, int64_t step) {
    const four r0 = mixed_four(from, 0), r1 = mixed_four(from, step);
    const four r2 = mixed_four(from, 2 * step), r3 = mixed_four(from, 3 * step);
    const four low01 = PICK(r0, r1, 0, 4, 1, 5), high01 = PICK(r0, r1, 2, 6, 3, 7);
    const four low23 = PICK(r2, r3, 0, 4, 1, 5), high23 = PICK(r2, r3, 2, 6, 3, 7);
    const four columns[4] = {PICK(low01, low23, 0, 1, 4, 5), PICK(low01, low23, 2, 3, 6, 7),
                             PICK(high01, high23, 0, 1, 4, 5), PICK(high01, high23, 2, 3, 6, 7)};
    for (int j = 0; j < 4; j++) memcpy(out + j * out_step, &columns[j], sizeof(four));
}

struct steps { int64_t place, channel; }; /* in memory, to the next place and to the next channel: one of them is 1 */

INLINE int64_t at(struct steps steps, int64_t place, int64_t channel) {
    return place * steps.place + channel * steps.channel;
}

/* Some places of some channels, from one order to the other: by four times four, the last ones over those before. A
   line of places at a time, so that the lines of cache on both sides stay until they are done. */
INLINE void turn(float *restrict out, struct steps to, struct blend from, struct steps of, int64_t places,
                 int64_t channels) {
    const int64_t out_step = to.place + to.channel - 1, step = of.place + of.channel - 1; /* the one that is not 1 */
    if (places < 4 || channels < 4) {
        for (int64_t c = 0; c < channels; c++)
            for (int64_t p = 0; p < places; p++) mix(out + at(to, p, c), moved(from, at(of, p, c)), 1);
        return;
    }
    for (int64_t line = 0; line < places; line += LINE)
        for (int64_t next_c = 0; next_c < channels; next_c += 4)
            for (int64_t next_p = line; next_p < line + LINE && next_p < places; next_p += 4) {
                const int64_t c = next_c < channels - 4 ? next_c : channels - 4;
                const int64_t p = next_p < places - 4 ? next_p : places - 4;
                turn_four(out + at(to, p, c), out_step, moved(from, at(of, p, c)), step);
            }
}

struct tile { int64_t first, last; }; /* elements of an example, in order: whole chunks, but for the last one */

/* Return the elements of a tile: a run, or with channels last as many as fill lines of cache. */
INLINE int64_t tile_size(const struct job *job) {
    const int64_t chunks = job->channels == 1 ? RUN : (LINE * (job->size / job->channels) + CHUNK - 1) / CHUNK;
    return CHUNK * (chunks < TILE ? chunks : TILE);
}

INLINE struct tile tile_of(const struct job *job, int64_t number) {
    const int64_t first = number * tile_size(job), last = first + tile_size(job);
    return (struct tile){first, last < job->size ? last : job->size};
}

enum direction { TO_ORDER, TO_MEMORY };

/* ordered[tile] = from[example] or out[example] = from[tile]. With channels last, a tile starts and ends amid a
   channel: up to three ranges of places have each their range of channels. */
INLINE void lay(const struct job *job, struct tile tile, float *restrict out, struct blend from, enum direction to) {
    const int64_t inner = job->size / job->channels;
    const int64_t c0 = tile.first / inner, p0 = tile.first % inner, c1 = tile.last / inner, p1 = tile.last % inner;
    const int64_t cuts[4] = {0, p0 < p1 ? p0 : p1, p0 < p1 ? p1 : p0, inner};
    const struct steps order = {1, inner}, memory = {job->channels, 1};
    if (job->channels == 1) {
        if (to == TO_ORDER) mix(out, moved(from, tile.first), tile.last - tile.first);
        else mix(out + tile.first, from, tile.last - tile.first);
    } else for (int i = 0; i < 3; i++) {
        const int64_t p = cuts[i], places = cuts[i + 1] - p, c = c0 + (p < p0), channels = c1 + (p < p1) - c;
        const int64_t ordered = at(order, p, c) - tile.first, lies = at(memory, p, c);
        if (to == TO_ORDER) turn(out + ordered, order, moved(from, lies), memory, places, channels);
        else turn(out + lies, memory, moved(from, ordered), order, places, channels);
    }
}

/* --- mix and noise ------------------------------------------------------------------------------------------ */

/* ordered[tile] = (1 + mult) * from[example] + add, each noise if there is one */
INLINE void take(const struct job *job, struct tile tile, float *ordered, struct blend from, int64_t example) {
    lay(job, tile, ordered, from, TO_ORDER);
    for (int64_t done = 0; done < tile.last - tile.first; done += CHUNK)
        perturb(job, ordered + done, example, (tile.first + done) / CHUNK);
}

/* Tell whether the map differs from its transpose. */
INLINE int transposes(const struct job *job) { return job->transposed && job->other; }

INLINE int64_t example_at(const struct job *job, int64_t place) {
    const int64_t example = job->path ? job->path[place] : place;
    return example < 0 ? ~example : example;
}

VECTORISED static void forward(const struct job *job, int64_t example, int64_t number) {
    float buffer[TILE * CHUNK];
    const struct tile tile = tile_of(job, number);
    float *out = job->out + example * job->size, *ordered = job->channels == 1 ? out + tile.first : buffer;
    struct blend from = {.a = job->in + example * job->size};
    if (job->other) {
        from.b = job->in + job->other[example] * job->size;
        from.own = own_part(job, example), from.part = 1.0f - from.own;
    }
    take(job, tile, ordered, from, example);
    if (ordered == buffer) lay(job, tile, out, (struct blend){.a = buffer}, TO_MEMORY);
}

/* One tile of the examples on the stretch that starts at a place of the path: each gets its own part of
   (1 + mult) * in, and a part of that of who took from it, the next one. Each of these is computed once, for two
   outputs. */
VECTORISED static void transposed(const struct job *job, int64_t number, int64_t place) {
    float values[3 * TILE * CHUNK];
    const struct tile tile = tile_of(job, number);
    const int64_t start = example_at(job, place);
    float *first = values, *mine = first, *theirs = first + tile_size(job), *spare = theirs + tile_size(job);
    take(job, tile, first, (struct blend){.a = job->in + start * job->size}, start);
    for (int64_t example = start, taker;; example = taker) {
        taker = job->other[example];
        if (taker == start) theirs = first;
        else take(job, tile, theirs, (struct blend){.a = job->in + taker * job->size}, taker);
        const struct blend both = {mine, theirs, own_part(job, example), 1.0f - own_part(job, taker)};
        lay(job, tile, job->out + example * job->size, both, TO_MEMORY);
        if (++place == job->examples || job->path[place] < 0) return;
        float *done = mine == first ? spare : mine;
        mine = theirs, theirs = done;
    }
}

/* --- threads: those of OpenMP, which torch keeps, or some that are made for one call and gone after it -------- */

struct share { _Alignas(64) int64_t next; int64_t end; }; /* of the pieces: the first that nobody took, and the end */

struct crew { /* who works through the pieces of one job */
    void (*work)(const void *job, int64_t piece);
    const void *job;
    pthread_t caller;
    int64_t threads, helpers; /* helpers that have come */
    struct share shares[THREADS];
};

/* Take the pieces of a share of one's own, then those that are left of others': what lies together is done by one, and
   nobody waits for a counter that others change. The caller's share is the first, as in torch's loops over a batch. */
static void work_through(void *argument) {
    struct crew *crew = argument;
    const int64_t helps = !pthread_equal(pthread_self(), crew->caller);
    const int64_t own = helps ? 1 + __atomic_fetch_add(&crew->helpers, 1, __ATOMIC_RELAXED) : 0;
    for (int64_t share = own; share < own + crew->threads; share++) {
        struct share *from = &crew->shares[share % crew->threads];
        for (int64_t piece; (piece = __atomic_fetch_add(&from->next, 1, __ATOMIC_RELAXED)) < from->end;)
            crew->work(crew->job, piece);
    }
}

static void *help(void *crew) {
    work_through(crew);
    return NULL;
}

/* Let `threads` of them work through the pieces of one job. */
static void in_threads(void (*work)(const void *job, int64_t piece), const void *job, int64_t pieces, int32_t threads,
                       team team) {
    struct crew crew;
    pthread_t helpers[THREADS];
    pthread_attr_t attributes;
    int made = 0;
    crew.work = work, crew.job = job, crew.caller = pthread_self(), crew.helpers = 0;
    crew.threads = threads < THREADS ? threads : THREADS;
    for (int64_t share = 0; share < crew.threads; share++)
        crew.shares[share] = (struct share){pieces * share / crew.threads, pieces * (share + 1) / crew.threads};
    if (crew.threads > 1 && team) {
        team(work_through, &crew, (unsigned)crew.threads, 0);
        return;
    }
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK);
    while (made < crew.threads - 1 && !pthread_create(&helpers[made], &attributes, help, &crew)) made++;
    pthread_attr_destroy(&attributes);
    work_through(&crew);
    while (made) pthread_join(helpers[--made], NULL);
}

/* --- pieces of mix and noise ---------------------------------------------------------------------------------- */

static int64_t tiles_of(const struct job *job) { return (job->size + tile_size(job) - 1) / tile_size(job); }

/* Return how many examples are a piece of work: all, or fewer where there is no tile for each thread. */
static int64_t stretch_of(const struct job *job) { return tiles_of(job) < job->threads ? STRETCH : job->examples; }

/* Lay the path: who is mixed in comes next, while the cache still has it. (Short examples are better taken in order,
   which the processor reads ahead.) Where a stretch starts, at one example of each cycle and again after so many, it
   holds the complement. */
static int lay_path(struct job *job) {
    const int64_t most = stretch_of(job);
    int64_t *end = job->path = malloc(sizeof(int64_t) * (size_t)job->examples);
    uint8_t *seen = calloc((size_t)job->examples, 1);
    if (!end || !seen) {
        free(seen);
        return 0;
    }
    for (int64_t start = 0; start < job->examples; start++)
        for (int64_t next = start, steps = 0; !seen[next]; next = job->other[next], steps++) {
            seen[next] = 1;
            *end++ = steps % most ? next : ~next;
        }
    free(seen);
    return 1;
}

/* Return how many tiles are a piece: those of examples in a row, or one tile of the examples on a stretch. */
static int64_t piece_of(const struct job *job) {
    if (transposes(job)) return stretch_of(job);
    return job->channels > 1 ? 1 : BATCH;
}

static void work_on(const void *argument, int64_t piece) {
    const struct job *job = argument;
    const int64_t tiles = tiles_of(job), units = tiles * job->examples, size = piece_of(job);
    for (int64_t unit = piece * size; unit < (piece + 1) * size && unit < units; unit++)
        if (!transposes(job)) forward(job, example_at(job, unit / tiles), unit % tiles);
        else if (job->path[unit % job->examples] < 0) transposed(job, unit / job->examples, unit % job->examples);
}

/* Return 0 where there was no memory for a number an example. */
EXPORT int nfm_mix_noise(struct job *job) {
    const int64_t units = tiles_of(job) * job->examples, size = piece_of(job);
    const int ready = !(transposes(job) || (job->other && job->size >= LONG)) || lay_path(job);
    if (ready) in_threads(work_on, job, (units + size - 1) / size, job->threads, job->team);
    free(job->path);
    return ready;
}

/* --- pasted boxes -------------------------------------------------------------------------------------------- */

static void paste(const struct pasting *job, int64_t plane, int64_t from) {
    const int64_t size = job->rows * job->row;
    char *out = job->out + plane * size;
    const char *own = job->in + plane * size, *other = job->in + from * size;
    memcpy(out, own, (size_t)(job->top * job->row));
    for (int64_t at = job->top * job->row; at < job->bottom * job->row; at += job->row) {
        memcpy(out + at, own + at, (size_t)job->left);
        memcpy(out + at + job->left, other + at + job->left, (size_t)(job->right - job->left));
        memcpy(out + at + job->right, own + at + job->right, (size_t)(job->row - job->right));
    }
    memcpy(out + job->bottom * job->row, own + job->bottom * job->row, (size_t)(size - job->bottom * job->row));
}

static void paste_example(const void *argument, int64_t example) {
    const struct pasting *job = argument;
    for (int64_t plane = 0; plane < job->planes; plane++)
        paste(job, example * job->planes + plane, job->source[example] * job->planes + plane);
}

EXPORT void nfm_paste_box(const struct pasting *job) {
    in_threads(paste_example, job, job->examples, job->threads, job->team);
}

/* --- windows of images, each its own: what lies over the border is 0 ------------------------------------------- */

VECTORISED static void cut(const void *argument, int64_t example) {
    const struct cutting *job = argument;
    const int64_t top = job->corners[2 * example], left = job->corners[2 * example + 1];
    const int64_t first = left < 0 ? -left : 0, beyond = job->columns - left;
    const int64_t last = beyond < job->width ? beyond : job->width; /* of the window's columns with pixels */
    for (int64_t plane = example * job->planes; plane < (example + 1) * job->planes; plane++)
        for (int64_t row = 0; row < job->height; row++) {
            uint8_t *out = job->out + (plane * job->height + row) * job->width;
            memset(out, 0, (size_t)job->width);
            if (top + row < 0 || top + row >= job->rows || first >= last) continue;
            const uint8_t *in = job->in + (plane * job->rows + top + row) * job->columns + (left + first);
            if (!job->mirrored[example]) memcpy(out + first, in, (size_t)(last - first));
            else for (int64_t i = 0; i < last - first; i++) out[job->width - 1 - first - i] = in[i];
        }
}

EXPORT void nfm_cut_windows(const struct cutting *job) {
    in_threads(cut, job, job->examples, job->threads, job->team);
}

/* --- levels of pixels: one look-up in an alias table each, as nfm/evaluate/corruptions/laws.py has it ------------ */

#define WHOLE_BITS 23 /* of a draw, as in nfm/evaluate/keyed.py, whose words these are: SplitMix64 of key and place */

INLINE uint64_t split_mix(uint64_t z) {
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

VECTORISED static void draw_levels(const void *argument, int64_t example) {
    const struct levels *job = argument;
    uint32_t words[CHUNK];
    const uint8_t *in = job->in + example * job->size;
    uint8_t *out = job->out + example * job->size;
    for (int64_t first = 0; first < job->size; first += CHUNK) {
        const int64_t left = job->size - first, count = left < CHUNK ? left : CHUNK;
        for (int64_t pair = 0; pair < (count + 1) / 2; pair++) {
            const uint64_t place = (uint64_t)(first / 2 + pair + 1);
            const uint64_t both = split_mix(job->keys[example] + place * 0x9E3779B97F4A7C15u);
            memcpy(words + 2 * pair, &both, sizeof both);
        }
        for (int64_t i = 0; i < count; i++) {
            const int32_t drawn = (int32_t)(words[i] & ((1u << WHOLE_BITS) - 1)); /* coin << 8 | column */
            const int32_t found = job->table[in[first + i] << 8 | (drawn & 255)];
            out[first + i] = (uint8_t)(((found - drawn) >> 31 & found) ^ drawn); /* a branch would be guessed wrong */
        }
    }
}

EXPORT void nfm_draw_levels(const struct levels *job) {
    in_threads(draw_levels, job, job->examples, job->threads, job->team);
}

/* --- values alone -------------------------------------------------------------------------------------------- */

/* Fill out[last - first] with the values of places `first` to `last` of examples in a row, `size` elements each. */
EXPORT void nfm_fill(float *out, int32_t law, uint64_t key, int64_t size, int64_t first, int64_t last) {
    const struct noise noise = {.key = key, .law = law, .level = 1.0f};
    float values[CHUNK];
    for (int64_t at = first, count; at < last; at += count) {
        const int64_t chunk = at % size / CHUNK, skipped = at % size % CHUNK;
        draw(values, &noise, at / size, size, chunk);
        count = length(size, chunk) - skipped;
        if (count > last - at) count = last - at;
        memcpy(out + (at - first), values + skipped, sizeof(float) * (size_t)count);
    }
}

/* Which source this was built from: the build passes a digest of this file. */
EXPORT uint64_t nfm_digest(void) { return NFM_DIGEST; }
